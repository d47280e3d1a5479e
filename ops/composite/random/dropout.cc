#include "ops/composite/random/dropout.h"

#include "ops/composite/precision.h"

namespace weft {

Tensor dropout(const Arg& x, double p, bool training) {
  const internal::FloatingOperand t(x, "dropout");
  WEFT_CHECK(p >= 0 && p <= 1, "dropout: p is ", p, "; need a probability from 0 to 1");
  if (!training || p == 0) return t;
  if (p == 1) return t * 0.0;
  const Tensor keep = ge(rand(t.shape(), {.device = t.device()}), p);
  return where(keep, t * (1 / (1 - p)), 0.0);
}

}  // namespace weft
