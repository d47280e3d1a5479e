// WEFT_GPU_CHECK_SMALL: the GPU's tests and benchmarks at extents that the emulated GPU runs in seconds.
#pragma once
#include <cstdlib>

namespace weft {

inline bool shrunk() { return std::getenv("WEFT_GPU_CHECK_SMALL") != nullptr; }
/// `whole`, or `small` under WEFT_GPU_CHECK_SMALL.
template <class T>
T at_most(T whole, T small) {
  return shrunk() ? small : whole;
}

}  // namespace weft
