// Shared by the readers of files: bytes in another order and size become tensors.
#pragma once
#include <string>
#include <string_view>

#include "framework/tensor/tensor.h"

namespace weft::data::internal {

/// The largest file that is read whole. No valid file of these formats is larger.
inline constexpr int64_t kMostFileBytes = int64_t{4} << 30;

/// Text of a file in a message: without control characters and of limited length.
std::string shown(std::string_view text);

/// A tensor of these elements: `kind` is i, u, f or b (bool) and `size` its bytes. 8- and 16-bit integers but u8 become
/// i32, and u32 becomes i64. Throws Unimplemented for elements without a dtype; `path` names the file.
Tensor tensor_of(std::string_view bytes, char kind, int64_t size, bool big_endian, const Shape& shape,
                 const std::string& path);

}  // namespace weft::data::internal
