#include "models/nn/dropout.h"

#include "ops/composite/random/dropout.h"
#include "ops/core/creation.h"

namespace weft::nn {

Dropout::Dropout(double p, std::source_location loc) : p_(p) {
  internal::LineScope line(loc);
  WEFT_CHECK(p >= 0 && p < 1, "Dropout: p is ", p, "; need 0 <= p < 1");
}

Tensor Dropout::operator()(const Arg& x) const {
  CallScope call(*this, x.line());
  // Reading the mode makes it part of a capture's key, so it is not read without dropout.
  return call.result(p_ > 0 ? dropout(x, p_, is_training()) : internal::tensor_of(x, "Dropout"));
}

}  // namespace weft::nn
