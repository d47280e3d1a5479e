// Feed-forward layers of a transformer block.
#pragma once
#include "models/nn/layers/linear.h"

namespace weft::nn {

struct MlpOptions {
  bool bias = true;
  const char* gelu = "tanh";  // approximation of gelu: "tanh" or "none"
  double std = 0;             // standard deviation of the normal initialisation; 0: Linear's default
  double down_std = 0;        // the same for the projection back to dim; 0: std
};

/// down(gelu(up(x))).
class Mlp : public Module {
 public:
  Linear up, down;
  Mlp(int64_t dim, int64_t hidden, const MlpOptions& options = {},
      std::source_location loc = std::source_location::current());
  Tensor operator()(const Arg& x) const;

 private:
  const char* gelu_;
};

struct SwiGluOptions {
  bool bias = false;
  double std = 0;
  double down_std = 0;
};

/// down(silu(gate(x)) * up(x)) (Shazeer 2020).
class SwiGlu : public Module {
 public:
  Linear gate, up, down;
  SwiGlu(int64_t dim, int64_t hidden, const SwiGluOptions& options = {},
         std::source_location loc = std::source_location::current());
  Tensor operator()(const Arg& x) const;
};

}  // namespace weft::nn
