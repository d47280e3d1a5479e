// Dropout from counter-based random bits: the same elements are dropped eagerly, compiled and in backward.
#pragma once
#include "framework/dispatch/arg.h"

namespace weft {

/// Each element is zero with probability p, otherwise x / (1 - p) (Srivastava et al. 2014); x itself unless training.
/// Throws for p outside [0, 1].
Tensor dropout(const Arg& x, double p = 0.5, bool training = true);

}  // namespace weft
