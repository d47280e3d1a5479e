// Turns results of the driver into weft::Error: the operation, the driver's text, and a hint.
#pragma once
#include <string>

#include "framework/base/str_cat.h"
#include "framework/cuda/libraries/driver_api.h"

namespace weft::cuda {

/// "CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered)".
std::string describe(CUresult result);

/// True for errors of a kernel that failed on the device: a later call reports them, and so do all calls after it.
bool is_device_fault(CUresult result);

namespace internal {
[[noreturn]] void fail_driver(CUresult result, const std::string& what);
}  // namespace internal

/// Throws weft::Error("cuda: WHAT: ERROR (text)") unless the call succeeded. For a fault of an earlier kernel, adds the
/// hint that WEFT_SYNC=1 names the kernel. The text is built only on failure.
template <class... A>
inline void check(CUresult result, const A&... what) {
  if (result != CUDA_SUCCESS) [[unlikely]]
    internal::fail_driver(result, str_cat(what...));
}

/// For destructors: an error there is of no use and must not be thrown.
inline void ignore(CUresult) {}

}  // namespace weft::cuda
