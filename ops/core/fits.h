// Whether a number fits a dtype: the one check of the functions that put the caller's numbers into tensors.
#pragma once
#include <utility>

#include "framework/dispatch/arg.h"

namespace weft::internal {

/// Throws, naming `op`, the number and the range, unless the dtype has a value for the number: an integer within the
/// range of an integer dtype (a fraction is cut off, as by to()), or a number that does not become infinite in a
/// floating-point dtype. bool accepts every number.
void check_fits(const char* op, const Arg& value, DType dtype);

/// The range in which a dtype has every integer.
std::pair<int64_t, int64_t> whole_numbers(DType dtype);

}  // namespace weft::internal
