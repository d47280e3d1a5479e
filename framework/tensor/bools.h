// The bytes of bool tensors whose memory is not Weft's.
#pragma once
#include <utility>

#include "framework/tensor/view.h"

namespace weft::internal {

/// The position of the first byte of a view of bools that is not 0 or 1, and the byte; -1: there is none. Kernels
/// compute with the bytes.
std::pair<int64_t, int> first_bad_bool(const StridedView& v);
/// Throws, naming `op`, if the view is of bool and a byte is not 0 or 1.
void check_bools(const char* op, const StridedView& v);

}  // namespace weft::internal
