// The table of driver functions that Weft calls, found in libcuda.so.1 at run time, and one sentence if there is no
// CUDA. Each row is X(symbol as the library exports it, its parameters); every function returns CUresult.
#pragma once
#include <string>

#include "framework/cuda/libraries/driver_types.h"

// clang-format off
#define WEFT_CUDA_DRIVER_FUNCTIONS(X)                                                                                  \
  X(cuInit, (unsigned flags))                                                                                          \
  X(cuDriverGetVersion, (int* version))                                                                                \
  X(cuGetErrorName, (CUresult error, const char** name))                                                               \
  X(cuGetErrorString, (CUresult error, const char** text))                                                             \
  X(cuDeviceGetCount, (int* count))                                                                                    \
  X(cuDeviceGet, (CUdevice* device, int ordinal))                                                                      \
  X(cuDeviceGetName, (char* name, int size, CUdevice device))                                                          \
  X(cuDeviceGetAttribute, (int* value, CUdevice_attribute attribute, CUdevice device))                                 \
  X(cuDeviceTotalMem_v2, (size_t* bytes, CUdevice device))                                                             \
  X(cuDeviceGetPCIBusId, (char* id, int size, CUdevice device))                                                        \
  X(cuDevicePrimaryCtxRetain, (CUcontext* context, CUdevice device))                                                   \
  X(cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                                                   \
  X(cuCtxSetCurrent, (CUcontext context))                                                                              \
  X(cuCtxSynchronize, ())                                                                                              \
  X(cuMemGetInfo_v2, (size_t* free, size_t* total))                                                                    \
  X(cuMemAlloc_v2, (CUdeviceptr* pointer, size_t bytes))                                                               \
  X(cuMemFree_v2, (CUdeviceptr pointer))                                                                               \
  X(cuMemHostAlloc, (void** pointer, size_t bytes, unsigned flags))                                                    \
  X(cuMemFreeHost, (void* pointer))                                                                                    \
  X(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void* from, size_t bytes, CUstream stream))                           \
  X(cuMemcpyDtoHAsync_v2, (void* to, CUdeviceptr from, size_t bytes, CUstream stream))                                 \
  X(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))                           \
  X(cuMemcpyPeerAsync, (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,  \
                        CUstream stream))                                                                              \
  X(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D* copy, CUstream stream))                                                  \
  X(cuMemsetD8Async, (CUdeviceptr to, unsigned char value, size_t count, CUstream stream))                             \
  X(cuMemsetD32Async, (CUdeviceptr to, unsigned value, size_t count, CUstream stream))                                 \
  X(cuStreamCreateWithPriority, (CUstream* stream, unsigned flags, int priority))                                      \
  X(cuStreamDestroy_v2, (CUstream stream))                                                                             \
  X(cuStreamSynchronize, (CUstream stream))                                                                            \
  X(cuStreamQuery, (CUstream stream))                                                                                  \
  X(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags))                                               \
  X(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode))                                              \
  X(cuStreamEndCapture, (CUstream stream, CUgraph* graph))                                                             \
  X(cuStreamGetCaptureInfo_v3, (CUstream stream, CUstreamCaptureStatus* status, uint64_t* id, CUgraph* graph,          \
                                const CUgraphNode** dependencies, const CUgraphEdgeData** edges, size_t* count))       \
  X(cuEventCreate, (CUevent* event, unsigned flags))                                                                   \
  X(cuEventDestroy_v2, (CUevent event))                                                                                \
  X(cuEventRecord, (CUevent event, CUstream stream))                                                                   \
  X(cuEventQuery, (CUevent event))                                                                                     \
  X(cuEventSynchronize, (CUevent event))                                                                               \
  X(cuEventElapsedTime, (float* milliseconds, CUevent start, CUevent end))                                             \
  X(cuModuleLoadData, (CUmodule* module, const void* image))                                                           \
  X(cuModuleUnload, (CUmodule module))                                                                                 \
  X(cuModuleGetFunction, (CUfunction* function, CUmodule module, const char* name))                                    \
  X(cuFuncGetAttribute, (int* value, CUfunction_attribute attribute, CUfunction function))                             \
  X(cuFuncSetAttribute, (CUfunction function, CUfunction_attribute attribute, int value))                              \
  X(cuFuncGetParamInfo, (CUfunction function, size_t index, size_t* offset, size_t* size))                             \
  X(cuLaunchKernel, (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,         \
                     unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void** parameters,    \
                     void** extra))                                                                                    \
  X(cuGraphInstantiateWithFlags, (CUgraphExec* exec, CUgraph graph, unsigned long long flags))                         \
  X(cuGraphLaunch, (CUgraphExec exec, CUstream stream))                                                                \
  X(cuGraphGetNodes, (CUgraph graph, CUgraphNode* nodes, size_t* count))                                               \
  X(cuGraphExecKernelNodeSetParams_v2,                                                                                 \
    (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* parameters))                                   \
  X(cuGraphExecUpdate_v2, (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* result))                      \
  X(cuGraphExecDestroy, (CUgraphExec exec))                                                                            \
  X(cuGraphDestroy, (CUgraph graph))                                                                                   \
  X(cuTensorMapEncodeTiled, (CUtensorMap* map, CUtensorMapDataType type, uint32_t rank, void* address,                 \
                             const uint64_t* dims, const uint64_t* strides, const uint32_t* box,                       \
                             const uint32_t* element_strides, CUtensorMapInterleave interleave,                        \
                             CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,                             \
                             CUtensorMapFloatOOBfill fill))
// clang-format on

namespace weft::cuda {

/// The driver's functions; null if the library does not have one.
struct DriverApi {
#define WEFT_CUDA_MEMBER(name, parameters) CUresult(*name) parameters = nullptr;
  WEFT_CUDA_DRIVER_FUNCTIONS(WEFT_CUDA_MEMBER)
#undef WEFT_CUDA_MEMBER
};

/// The oldest supported driver, in cuDriverGetVersion's numbers: 12.4, the first with every function of the table.
inline constexpr int kLeastDriverVersion = 12040;

/// Whether this process can use CUDA.
struct Availability {
  bool ok = false;
  std::string why;      // if not ok, one sentence without a full stop: "no NVIDIA driver: libcuda.so.1 was not found"
  int version = 0;      // version of the driver, 13000 for CUDA 13.0; 0 if unknown
  int devices = 0;      // number of GPUs
  std::string library;  // the file that was opened, if any
};

/// Looks for CUDA at the first call and caches the answer; initialises the driver, creates no context. Never throws.
const Availability& availability();

/// The driver's functions. Throws Unavailable with availability().why if there is no CUDA.
const DriverApi& driver();

/// Text of a version number: "13.0" for 13000.
std::string version_text(int version);

/// Replaces the driver by another table during its lifetime: the fake driver of tests. All objects that use the driver
/// (devices, allocators, loaded modules) are destroyed before and after. Not for use while work is running.
class ScopedDriver {
 public:
  explicit ScopedDriver(const DriverApi& table);
  ~ScopedDriver();
  ScopedDriver(const ScopedDriver&) = delete;

 private:
  void* previous_;
};

namespace internal {
/// Registers a function that destroys objects when the driver is replaced. Functions run in reverse order of
/// registration, each at most once per change.
void at_driver_change(void (*forget)());
/// The result of availability() for a table read from `library`; `missing` is the result of DynamicLibrary::fill.
Availability probe(const DriverApi& table, const std::string& library, const std::string& missing);
}  // namespace internal

}  // namespace weft::cuda
