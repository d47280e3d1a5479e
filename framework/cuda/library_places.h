// Where the libraries of a CUDA toolkit lie: the loader's own path, the toolkit's usual folder, NVIDIA's Python wheels.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace weft::cuda {

/// Names and paths to try for a library of the toolkit ("nvrtc", "cublasLt") in order, majors 13 and 12. `asked`, if
/// not empty, is the only one. A driver of CUDA `driver_major` (0: any) runs what toolkits of its own major and older
/// ones make: what is newer comes last.
std::vector<std::string> library_places(std::string_view stem, const std::string& asked, int driver_major = 0);

}  // namespace weft::cuda
