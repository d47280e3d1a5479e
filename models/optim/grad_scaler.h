// GradScaler: dynamic loss scaling for f16 (Micikevicius et al. 2018, arXiv:1710.03740), like PyTorch's GradScaler. The
// scale and the count of good steps are cells that the step updates, so the host reads nothing.
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "framework/autodiff/grad.h"

namespace weft::optim {

struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;  // good steps in a row before the scale grows
  Device device = {};              // device of the parameters
};

/// Inside a step:
///   auto grads = scaler.unscale(grad(scaler.scale(loss), params));
///   auto [clipped, norm] = clip_grad_norm(grads, 1.0);
///   Tensor ok = logical_and(isfinite(loss), isfinite(norm));
///   scaler.update(ok);  commit_if(ok);  opt.step(clipped);
class GradScaler {
 public:
  /// Use powers of two as factors: they keep the significant bits of values that stay in range.
  explicit GradScaler(const GradScalerOptions& options = {},
                      std::source_location loc = std::source_location::current());

  /// loss * scale, in f32 or wider.
  Tensor scale(const Tensor& loss, std::source_location loc = std::source_location::current()) const;
  /// Gradients of a scaled loss, times factor / scale. 16-bit gradients become f32; undefined gradients stay undefined.
  Gradients unscale(const Gradients& grads, double factor = 1,
                    std::source_location loc = std::source_location::current()) const;
  /// Call it once per step, after unscale(). `ok` is a bool scalar: no gradient overflowed. If `ok` is false, the scale
  /// shrinks, but not below 1. After growth_interval good steps in a row the scale grows, unless it would overflow.
  /// commit_if has no effect on the scale.
  void update(const Tensor& ok, std::source_location loc = std::source_location::current()) const;

  Buffer scale_factor;  // f32 scalar: "loss_scale"
  Buffer good_steps;    // i64 scalar: good steps since the scale last changed
  double get_scale() const;
  /// Both cells by name, for checkpoints.
  std::vector<std::pair<std::string, CellHandle>> named_cells() const;
  std::map<std::string, Tensor> state_dict(std::vector<std::string>* torn = nullptr,
                                           std::source_location loc = std::source_location::current()) const;
  void load_state_dict(const std::map<std::string, Tensor>& values,
                       std::source_location loc = std::source_location::current()) const;

 private:
  GradScalerOptions options_;
};

}  // namespace weft::optim
