// The bytes of bool tensors whose memory is not Weft's.
#pragma once
#include "framework/tensor/view.h"

namespace weft::internal {

/// Throws, naming `op`, if the view is of bool and a byte is not 0 or 1: kernels compute with the bytes.
void check_bools(const char* op, const StridedView& v);

}  // namespace weft::internal
