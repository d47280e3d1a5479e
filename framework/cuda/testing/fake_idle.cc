// The table of a fake driver on which nothing runs.
#include <cstring>

#include "framework/cuda/testing/fake_driver.h"

namespace weft::cuda::testing {

DriverApi FakeDriver::idle_table() const {
  static DriverApi real;
  static thread_local bool capturing = false;
  real = table();
  DriverApi t = real;
  t.cuStreamBeginCapture_v2 = [](auto... a) {
    capturing = true;
    return real.cuStreamBeginCapture_v2(a...);
  };
  t.cuStreamEndCapture = [](auto... a) {
    capturing = false;
    return real.cuStreamEndCapture(a...);
  };
  t.cuLaunchKernel = [](auto... a) { return capturing ? real.cuLaunchKernel(a...) : CUDA_SUCCESS; };
  t.cuGraphLaunch = [](auto...) { return CUDA_SUCCESS; };
  t.cuGraphExecKernelNodeSetParams_v2 = [](auto...) { return CUDA_SUCCESS; };
  t.cuMemcpyHtoDAsync_v2 = [](auto...) { return CUDA_SUCCESS; };
  t.cuMemcpyDtoHAsync_v2 = [](void* to, CUdeviceptr, size_t bytes, CUstream) {
    std::memset(to, 0, bytes);
    return CUDA_SUCCESS;
  };
  t.cuMemcpyDtoDAsync_v2 = [](auto...) { return CUDA_SUCCESS; };
  t.cuMemcpy2DAsync_v2 = [](auto...) { return CUDA_SUCCESS; };
  t.cuMemsetD8Async = [](auto...) { return CUDA_SUCCESS; };
  t.cuMemsetD32Async = [](auto...) { return CUDA_SUCCESS; };
  t.cuEventRecord = [](auto...) { return CUDA_SUCCESS; };
  t.cuEventQuery = [](auto...) { return CUDA_SUCCESS; };
  t.cuEventSynchronize = [](auto...) { return CUDA_SUCCESS; };
  t.cuStreamWaitEvent = [](auto...) { return CUDA_SUCCESS; };
  return t;
}

}  // namespace weft::cuda::testing
