// Results of the driver turned into weft::Error: what was being done, the driver's words, and what to do about it.
#pragma once
#include <string>

#include "framework/base/str_cat.h"
#include "framework/cuda/driver_api.h"

namespace weft::cuda {

/// "CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered)".
std::string describe(CUresult result);

/// True for what a kernel leaves behind when it fails on the device: seen by a later call, and by all that follow.
bool is_device_fault(CUresult result);

namespace internal {
[[noreturn]] void fail_driver(CUresult result, const std::string& what);
}  // namespace internal

/// Throws weft::Error("cuda: WHAT: ERROR (words)") unless the call succeeded. A fault of an earlier kernel gets the
/// hint that WEFT_SYNC=1 names it. The text is built only then.
template <class... A>
inline void check(CUresult result, const A&... what) {
  if (result != CUDA_SUCCESS) [[unlikely]]
    internal::fail_driver(result, str_cat(what...));
}

/// For destructors: a failing call there is of no use to anybody, and must not throw.
inline void ignore(CUresult) {}

}  // namespace weft::cuda
