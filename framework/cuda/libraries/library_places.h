// Locations of the libraries of a CUDA toolkit: the loader's path, the toolkit's usual folder, NVIDIA's Python wheels.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace weft::cuda {

/// Names and paths to try, in order, for a library of the toolkit ("nvrtc", "cublasLt"), majors 13 and 12. `asked`, if
/// not empty, is the only one. A driver of CUDA `driver_major` (0: any) runs code made by toolkits of its own and older
/// majors, so newer ones come last.
std::vector<std::string> library_places(std::string_view stem, const std::string& asked, int driver_major = 0);

}  // namespace weft::cuda
