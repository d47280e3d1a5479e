// NumPy's arrays: .npy files (format 1.0 to 3.0) and .npz archives of them, stored or deflated.
#pragma once
#include <map>
#include <string>

#include "framework/tensor/tensor.h"

namespace weft::data {

/// The array of a .npy file, in either byte order and in C or Fortran order. uint16 becomes i32, uint32
/// becomes i64; complex numbers, uint64, text and objects are refused. Errors begin with the path.
Tensor load_npy(const std::string& path, std::source_location loc = std::source_location::current());
/// The arrays of a .npz archive (np.savez, np.savez_compressed) by name, without ".npy".
std::map<std::string, Tensor> load_npz(const std::string& path,
                                       std::source_location loc = std::source_location::current());
/// Writes a .npy file atomically, with the dtypes that NumPy has: f64 f32 f16 i64 i32 i16 i8 u8 bool.
void save_npy(const Tensor& x, const std::string& path, std::source_location loc = std::source_location::current());

}  // namespace weft::data
