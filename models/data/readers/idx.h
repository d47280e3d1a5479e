// The IDX format of MNIST (http://yann.lecun.com/exdb/mnist): one array, big-endian; also as .gz.
#pragma once
#include <string>

#include "framework/tensor/tensor.h"

namespace weft::data {

/// The array of the file: u8, i32 (of 8-, 16- and 32-bit integers), f32 or f64. Throws an error that begins with the
/// path if the file is damaged, or would expand to more than 4 GiB.
Tensor read_idx(const std::string& path, std::source_location loc = std::source_location::current());

}  // namespace weft::data
