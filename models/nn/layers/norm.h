// Norms over the last dim, computed in f32 and returned in x's dtype. LayerNorm and RMSNorm convert to Norm, so a model
// can choose one at run time.
#pragma once
#include "framework/dispatch/arg.h"
#include "models/nn/module.h"

namespace weft::nn {

struct NormOptions {
  double eps = 1e-5;
  bool bias = true;  // LayerNorm only
};

class Norm : public Module {
 public:
  Parameter weight;  // [dim], starts at 1
  Parameter bias;    // [dim]; undefined without bias
  /// x[..., dim], normalised, scaled and shifted.
  Tensor operator()(const Arg& x) const;

 protected:
  enum NormKind { kLayer, kRms };
  Norm(NormKind kind, int64_t dim, bool bias, double eps, std::source_location loc);

 private:
  NormKind kind_;
  double eps_;
};

/// (x - mean) / sqrt(variance + eps) * weight + bias (Ba et al. 2016).
class LayerNorm : public Norm {
 public:
  explicit LayerNorm(int64_t dim, const NormOptions& options = {},
                     std::source_location loc = std::source_location::current())
      : Norm(kLayer, dim, options.bias, options.eps, loc) {}
};

/// x / sqrt(mean of x² + eps) * weight (Zhang and Sennrich 2019).
class RMSNorm : public Norm {
 public:
  explicit RMSNorm(int64_t dim, const NormOptions& options = {},
                   std::source_location loc = std::source_location::current())
      : Norm(kRms, dim, false, options.eps, loc) {}
};

/// RMSNorm or LayerNorm.
inline Norm make_norm(bool rms, int64_t dim, const NormOptions& options,
                      std::source_location loc = std::source_location::current()) {
  return rms ? Norm(RMSNorm(dim, options, loc)) : Norm(LayerNorm(dim, options, loc));
}

}  // namespace weft::nn
