// GradScaler: dynamic loss scaling for f16 (Micikevicius et al. 2018, arXiv:1710.03740), as PyTorch's of that name.
// Scale and count of good steps are cells, changed by the step itself: nothing is read by the host.
#pragma once
#include <utility>
#include <vector>

#include "framework/dispatch/parameter.h"

namespace weft::optim {

struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;  // good steps in a row before the scale grows
  Device device = {};              // where the parameters are
};

/// Inside a step:
///   auto grads = scaler.unscale(grad(scaler.scale(loss), params));
///   auto [clipped, norm] = clip_grad_norm(grads, 1.0);
///   Tensor ok = logical_and(isfinite(loss), isfinite(norm));
///   scaler.update(ok);  commit_if(ok);  opt.step(clipped);
class GradScaler {
 public:
  /// Factors that are powers of two change no bits of what fits.
  explicit GradScaler(const GradScalerOptions& options = {});

  /// loss * scale, in f32 at least.
  Tensor scale(const Tensor& loss) const;
  /// Gradients of a scaled loss times factor / scale, 16-bit ones in f32. Undefined ones stay so.
  std::vector<Tensor> unscale(const std::vector<Tensor>& grads, double factor = 1) const;
  /// To be called once a step, after unscale(). `ok`, a 0-d bool: no gradient overflowed. If not, the scale shrinks,
  /// not below 1; after growth_interval good steps in a row it grows, unless it would overflow.
  /// commit_if does not matter.
  void update(const Tensor& ok) const;

  Buffer scale_factor;  // f32 0-d: "loss_scale"
  Buffer good_steps;    // i64 0-d: good steps since the scale last changed
  double get_scale() const;
  /// Both cells by name: what a checkpoint holds.
  std::vector<std::pair<std::string, CellHandle>> named_cells() const;

 private:
  GradScalerOptions options_;
};

}  // namespace weft::optim
