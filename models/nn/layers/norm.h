// Norms over the last dims, computed in f32 and returned in x's dtype. LayerNorm and RMSNorm convert to Norm, so that a
// model can choose one at run time.
#pragma once
#include <concepts>

#include "framework/dispatch/arg.h"
#include "models/nn/module.h"

namespace weft::nn {

struct NormOptions {
  double eps = 1e-5;
  bool elementwise_affine = true;  // false: neither weight nor bias
  bool bias = true;                // LayerNorm only
};

class Norm : public Module {
 public:
  using Module::Module;
  Parameter weight;  // [normalized_shape], starts at 1; undefined without elementwise_affine
  Parameter bias;    // [normalized_shape]; undefined without bias
  /// x[..., normalized_shape], normalised over its last dims, scaled and shifted.
  Tensor operator()(const Arg& x) const;

 protected:
  enum NormKind { kLayer, kRms };
  Norm(NormKind kind, const Shape& normalized_shape, const NormOptions& options, std::source_location loc);

 private:
  NormKind kind_ = {};
  Shape normalized_shape_;
  double eps_;
};

/// (x - mean) / sqrt(variance + eps) * weight + bias (Ba et al. 2016).
class LayerNorm : public Norm {
 public:
  using Norm::Norm;
  explicit LayerNorm(const Shape& normalized_shape, const NormOptions& options = {},
                     std::source_location loc = std::source_location::current())
      : Norm(kLayer, normalized_shape, options, loc) {}
  explicit LayerNorm(int64_t dim, const NormOptions& options = {},
                     std::source_location loc = std::source_location::current())
      : LayerNorm(Shape{dim}, options, loc) {}
  /// PyTorch's second argument.
  template <std::floating_point E>
  LayerNorm(const Shape& normalized_shape, E eps, std::source_location loc = std::source_location::current())
      : LayerNorm(normalized_shape, NormOptions{.eps = eps}, loc) {}
  template <std::floating_point E>
  LayerNorm(int64_t dim, E eps, std::source_location loc = std::source_location::current())
      : LayerNorm(Shape{dim}, NormOptions{.eps = eps}, loc) {}
};

/// x / sqrt(mean of x² + eps) * weight (Zhang and Sennrich 2019).
class RMSNorm : public Norm {
 public:
  using Norm::Norm;
  explicit RMSNorm(const Shape& normalized_shape, const NormOptions& options = {},
                   std::source_location loc = std::source_location::current())
      : Norm(kRms, normalized_shape, options, loc) {}
  explicit RMSNorm(int64_t dim, const NormOptions& options = {},
                   std::source_location loc = std::source_location::current())
      : RMSNorm(Shape{dim}, options, loc) {}
  template <std::floating_point E>
  RMSNorm(const Shape& normalized_shape, E eps, std::source_location loc = std::source_location::current())
      : RMSNorm(normalized_shape, NormOptions{.eps = eps}, loc) {}
  template <std::floating_point E>
  RMSNorm(int64_t dim, E eps, std::source_location loc = std::source_location::current())
      : RMSNorm(Shape{dim}, NormOptions{.eps = eps}, loc) {}
};

/// RMSNorm or LayerNorm.
inline Norm make_norm(bool rms, int64_t dim, const NormOptions& options,
                      std::source_location loc = std::source_location::current()) {
  return rms ? Norm(RMSNorm(dim, options, loc)) : Norm(LayerNorm(dim, options, loc));
}

}  // namespace weft::nn
