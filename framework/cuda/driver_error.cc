#include "framework/cuda/driver_error.h"

#include <atomic>

#include "framework/base/error.h"

namespace weft::cuda {
namespace {

// Of device_fault.h, whose header is for those who listen, not for all who call the driver.
using TellOfFault = std::string (*)();
std::atomic<TellOfFault> tell_of_fault[8];

}  // namespace

std::string describe(CUresult result) {
  const DriverApi& api = driver();
  const char *name = nullptr, *text = nullptr;
  api.cuGetErrorName(result, &name);
  api.cuGetErrorString(result, &text);
  return str_cat(name ? std::string(name) : str_cat("error ", static_cast<unsigned>(result)),
                 text ? str_cat(" (", text, ")") : "");
}

bool is_device_fault(CUresult result) {
  switch (result) {
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
      return true;
    default:
      return false;
  }
}

namespace internal {

void at_device_fault(TellOfFault tell) {
  for (std::atomic<TellOfFault>& slot : tell_of_fault) {
    TellOfFault none = nullptr;
    if (slot.compare_exchange_strong(none, tell)) return;
  }
}

void fail_driver(CUresult result, const std::string& what) {
  std::string message = str_cat("cuda: ", what, ": ", describe(result));
  Code code = result == CUDA_ERROR_OUT_OF_MEMORY ? Code::kResourceExhausted : Code::kInternal;
  if (is_device_fault(result)) {
    code = Code::kAborted;
    message += "; a kernel launched before this failed on the device: run again with WEFT_SYNC=1 to have it named";
    for (const std::atomic<TellOfFault>& slot : tell_of_fault)
      if (const TellOfFault tell = slot.load()) message += tell();
  }
  weft::internal::fail(code, message);
}

}  // namespace internal
}  // namespace weft::cuda
