// Dropout: in training, sets elements to zero and scales the others to keep the mean (Srivastava et al. 2014).
#pragma once
#include "framework/dispatch/arg.h"
#include "models/nn/module.h"

namespace weft::nn {

class Dropout : public Module {
 public:
  using Module::Module;
  /// p in [0, 1) is the probability that an element becomes zero.
  explicit Dropout(double p = 0.5, std::source_location loc = std::source_location::current());
  Tensor operator()(const Arg& x) const;
  double p() const { return p_; }

 private:
  double p_;
};

}  // namespace weft::nn
