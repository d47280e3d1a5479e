#include "framework/cuda/libraries/driver_error.h"

#include <atomic>

#include "framework/base/error.h"

namespace weft::cuda {
namespace {

// Used by device_fault.h, a header for code that handles faults; driver_error.h is for all callers of the driver.
using FaultReporter = std::string (*)();
std::atomic<FaultReporter> fault_reporters[8];

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

void at_device_fault(FaultReporter report) {
  for (std::atomic<FaultReporter>& slot : fault_reporters) {
    FaultReporter none = nullptr;
    if (slot.compare_exchange_strong(none, report)) return;
  }
}

void fail_driver(CUresult result, const std::string& what) {
  std::string message = str_cat("cuda: ", what, ": ", describe(result));
  Code code = result == CUDA_ERROR_OUT_OF_MEMORY ? Code::kResourceExhausted : Code::kInternal;
  if (is_device_fault(result)) {
    code = Code::kAborted;
    message += "; a kernel launched before this failed on the device: run again with WEFT_SYNC=1 to have it named";
    for (const std::atomic<FaultReporter>& slot : fault_reporters)
      if (const FaultReporter report = slot.load()) message += report();
  }
  weft::internal::fail(code, message);
}

}  // namespace internal
}  // namespace weft::cuda
