// Tests the fake driver through its own table: work that runs late, and reports of misuse.
#include <cstring>

#include "framework/cuda/testing/fake_gpu_test.h"

namespace weft::cuda::testing {
namespace {

class FakeDriverTest : public FakeGpuTest {
 protected:
  void SetUp() override {
    ASSERT_EQ(api.cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    ASSERT_EQ(api.cuCtxSetCurrent(context), CUDA_SUCCESS);
    ASSERT_EQ(api.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
  }
  void TearDown() override {
    api.cuStreamDestroy_v2(stream);
    api.cuDevicePrimaryCtxRelease_v2(0);
    FakeGpuTest::TearDown();
  }
  CUdeviceptr device_memory(size_t bytes) {
    CUdeviceptr p = 0;
    EXPECT_EQ(api.cuMemAlloc_v2(&p, bytes), CUDA_SUCCESS);
    return p;
  }
  template <class T>
  T* pinned(size_t count) {
    void* p = nullptr;
    EXPECT_EQ(api.cuMemHostAlloc(&p, count * sizeof(T), 0), CUDA_SUCCESS);
    return static_cast<T*>(p);
  }

  const DriverApi& api = driver();
  CUcontext context = nullptr;
  CUstream stream = nullptr;
};

TEST_F(FakeDriverTest, CopiesRunWhenSomebodyWaits) {
  CUdeviceptr d = device_memory(16);
  int* from = pinned<int>(4);
  int* to = pinned<int>(4);
  for (int i = 0; i < 4; ++i) from[i] = i + 1;
  EXPECT_EQ(api.cuMemcpyHtoDAsync_v2(d, from, 16, stream), CUDA_SUCCESS);
  EXPECT_EQ(api.cuMemcpyDtoHAsync_v2(to, d, 16, stream), CUDA_SUCCESS);
  EXPECT_EQ(fake.pending(), 2);
  EXPECT_EQ(to[0], -1);  // not there yet
  from[0] = 7;           // too early: the copy has not read it
  EXPECT_EQ(api.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(complaint(), "cuMemcpyHtoDAsync_v2 of 16 bytes on stream 1: the host changed its source before it ran");
  EXPECT_EQ(to[0], 7);
  EXPECT_EQ(to[3], 4);
  api.cuMemFree_v2(d);
  api.cuMemFreeHost(from);
  api.cuMemFreeHost(to);
}

TEST_F(FakeDriverTest, ComplainsOfWrongMemory) {
  CUdeviceptr d = device_memory(16);
  int* host = pinned<int>(8);
  int pageable[8] = {};
  EXPECT_EQ(api.cuMemcpyHtoDAsync_v2(d, host, 32, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(complaint(), "cuMemcpyHtoDAsync_v2: to memory beyond its end: 32 bytes where 16 are left");
  EXPECT_EQ(api.cuMemcpyHtoDAsync_v2(d, pageable, 16, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(complaint(), "cuMemcpyHtoDAsync_v2: from host memory that is not pinned");
  EXPECT_EQ(api.cuMemcpyDtoDAsync_v2(d, d + 8, 16, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(complaint(), "cuMemcpyDtoDAsync_v2: the two overlap");
  EXPECT_EQ(api.cuMemsetD32Async(d + 2, 0, 1, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(complaint(), "cuMemsetD32Async: address is not a multiple of 4");
  EXPECT_EQ(api.cuMemcpyHtoDAsync_v2(d, host, 16, nullptr), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(complaint(), "cuMemcpyHtoDAsync_v2: on the default stream");
  api.cuMemFree_v2(d);
  EXPECT_EQ(api.cuMemFree_v2(d), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(complaint(), "cuMemFree_v2: freed twice");
  EXPECT_EQ(api.cuMemsetD8Async(d, 0, 1, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(complaint(), "cuMemsetD8Async: to memory that was freed");
  api.cuMemFreeHost(host);
}

TEST_F(FakeDriverTest, ComplainsOfMemoryFreedUnderPendingWork) {
  CUdeviceptr d = device_memory(64);
  int* host = pinned<int>(16);
  api.cuMemcpyHtoDAsync_v2(d, host, 64, stream);
  api.cuMemFreeHost(host);
  EXPECT_EQ(complaint(), "cuMemFreeHost: freed while cuMemcpyHtoDAsync_v2 of 64 bytes is pending");
  api.cuStreamSynchronize(stream);
  EXPECT_EQ(complaint(), "cuMemcpyHtoDAsync_v2 of 64 bytes: memory was freed before it ran");
  api.cuMemFree_v2(d);
}

TEST_F(FakeDriverTest, StreamsRunApartUntilAnEventOrdersThem) {
  CUstream other = nullptr;
  CUevent event = nullptr;
  api.cuStreamCreateWithPriority(&other, CU_STREAM_NON_BLOCKING, 0);
  api.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
  CUdeviceptr d = device_memory(4);
  int* host = pinned<int>(2);
  host[0] = 5;
  api.cuMemcpyHtoDAsync_v2(d, host, 4, stream);
  api.cuMemcpyDtoHAsync_v2(host + 1, d, 4, other);  // no order: reads poison
  api.cuStreamSynchronize(other);
  EXPECT_EQ(host[1], -1);
  api.cuStreamSynchronize(stream);
  EXPECT_EQ(complaint(),
            "cuMemcpyHtoDAsync_v2 of 4 bytes on stream 1 and cuMemcpyDtoHAsync_v2 of 4 bytes on stream 2 "
            "touch the same memory, and nothing orders them");
  api.cuEventRecord(event, stream);
  EXPECT_EQ(api.cuEventQuery(event), CUDA_ERROR_NOT_READY);
  api.cuStreamWaitEvent(other, event, 0);
  api.cuMemcpyDtoHAsync_v2(host + 1, d, 4, other);
  api.cuStreamSynchronize(other);
  EXPECT_EQ(host[1], 5);
  EXPECT_EQ(api.cuEventQuery(event), CUDA_SUCCESS);
  api.cuEventDestroy_v2(event);
  api.cuStreamDestroy_v2(other);
  EXPECT_EQ(api.cuStreamSynchronize(other), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(complaint(), "cuStreamSynchronize: no such stream");
  api.cuMemFree_v2(d);
  api.cuMemFreeHost(host);
}

// Work of two streams on the same memory must be ordered by an event or by a wait of the host; otherwise it is
// reported, whichever runs first.
TEST_F(FakeDriverTest, WhatNothingOrdersIsARace) {
  CUstream other = nullptr;
  CUevent event = nullptr;
  api.cuStreamCreateWithPriority(&other, CU_STREAM_NON_BLOCKING, 0);
  api.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
  CUdeviceptr d = device_memory(64);
  int* host = pinned<int>(32);
  struct Params {
    CUdeviceptr p;
  };
  fake.add_kernel("k", {.parameter_bytes = 8, .touches = [](const FakeLaunch& l) {
                          return std::vector{FakeRange{l.as<Params>().p, 64}};
                        }});
  CUmodule module = nullptr;
  CUfunction k = nullptr;
  api.cuModuleLoadData(&module, "image");
  ASSERT_EQ(api.cuModuleGetFunction(&k, module, "k"), CUDA_SUCCESS);
  void* parameters[] = {&d};
  const auto launch = [&](CUstream on) { api.cuLaunchKernel(k, 1, 1, 1, 32, 1, 1, 0, on, parameters, nullptr); };
  enum Order { kNone, kEvent, kEventTooEarly, kHostEvent, kHostStream, kOneStream };
  for (uint64_t seed : {1, 2, 3, 4}) {
    fake.set_seed(seed);
    for (Order order : {kNone, kEvent, kEventTooEarly, kHostEvent, kHostStream, kOneStream}) {
      for (const bool reads : {false, true}) {
        if (order == kEventTooEarly) api.cuEventRecord(event, stream);
        launch(stream);
        if (order == kEvent || order == kHostEvent) api.cuEventRecord(event, stream);
        if (order == kEvent || order == kEventTooEarly) api.cuStreamWaitEvent(other, event, 0);
        if (order == kHostEvent) api.cuEventSynchronize(event);
        if (order == kHostStream) api.cuStreamSynchronize(stream);
        const CUstream second = order == kOneStream ? stream : other;
        if (reads)
          api.cuMemcpyDtoHAsync_v2(host, d, 64, second);
        else
          launch(second);
        api.cuCtxSynchronize();
        const std::string found = complaint();
        const bool race = order == kNone || order == kEventTooEarly;
        EXPECT_EQ(found.find("touch the same memory, and nothing orders them") != found.npos, race)
            << order << " " << reads << ": " << found;
        if (race) {
          EXPECT_NE(found.find("kernel k on stream "), found.npos) << found;
        }
      }
    }
  }
  // Both may read.
  api.cuMemcpyDtoHAsync_v2(host, d, 64, stream);
  api.cuMemcpyDtoHAsync_v2(host + 16, d, 64, other);
  api.cuCtxSynchronize();
  EXPECT_EQ(complaint(), "");
  api.cuModuleUnload(module);
  api.cuEventDestroy_v2(event);
  api.cuStreamDestroy_v2(other);
  api.cuMemFree_v2(d);
  api.cuMemFreeHost(host);
}

TEST_F(FakeDriverTest, LaunchesAreCheckedAgainstKernelAndDevice) {
  fake.add_kernel("k", {.parameter_bytes = 8, .max_threads = 256});
  CUmodule module = nullptr;
  CUfunction k = nullptr, none = nullptr;
  api.cuModuleLoadData(&module, "image");
  EXPECT_EQ(api.cuModuleGetFunction(&none, module, "absent"), CUDA_ERROR_NOT_FOUND);
  ASSERT_EQ(api.cuModuleGetFunction(&k, module, "k"), CUDA_SUCCESS);
  uint64_t parameter = 1;
  void* parameters[] = {&parameter};
  auto launch = [&](unsigned gx, unsigned gy, unsigned threads, unsigned shared) {
    return api.cuLaunchKernel(k, gx, gy, 1, threads, 1, 1, shared, stream, parameters, nullptr);
  };
  EXPECT_EQ(launch(1, 1, 256, 0), CUDA_SUCCESS);
  EXPECT_EQ(launch(1, 1, 512, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(complaint(), "cuLaunchKernel of k: 512 threads in a block, at most 256");
  EXPECT_EQ(launch(1, 65536, 256, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(complaint(), "cuLaunchKernel of k: grid [1, 65536, 1]");
  EXPECT_EQ(launch(1, 1, 256, 100 << 10), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(complaint(), "cuLaunchKernel of k: 102400 bytes of shared memory where 49152 were requested");
  EXPECT_EQ(api.cuFuncSetAttribute(k, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 228 << 10),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api.cuFuncSetAttribute(k, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100 << 10), CUDA_SUCCESS);
  EXPECT_EQ(launch(1, 1, 256, 100 << 10), CUDA_SUCCESS);
  api.cuModuleUnload(module);
  EXPECT_EQ(complaint(), "cuModuleUnload: kernel k is pending\ncuModuleUnload: kernel k is pending");
}

TEST_F(FakeDriverTest, AnErrorOfALaunchSticksToTheDevice) {
  fake.add_kernel("k", {});
  CUmodule module = nullptr;
  CUfunction k = nullptr;
  api.cuModuleLoadData(&module, "image");
  api.cuModuleGetFunction(&k, module, "k");
  fake.fail_launch_after(1, CUDA_ERROR_MISALIGNED_ADDRESS);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(api.cuLaunchKernel(k, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(api.cuStreamSynchronize(stream), CUDA_ERROR_MISALIGNED_ADDRESS);
  EXPECT_EQ(fake.kernels_run().size(), 2u);  // the third did not run
  EXPECT_EQ(api.cuStreamSynchronize(stream), CUDA_ERROR_MISALIGNED_ADDRESS);
  CUdeviceptr p = 0;
  EXPECT_EQ(api.cuMemAlloc_v2(&p, 4), CUDA_ERROR_MISALIGNED_ADDRESS);
  api.cuModuleUnload(module);
}

TEST_F(FakeDriverTest, CaptureKeepsWorkForTheGraph) {
  CUdeviceptr d = device_memory(4);
  int* host = pinned<int>(1);
  ASSERT_EQ(api.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
  api.cuMemsetD32Async(d, 3, 1, stream);
  EXPECT_EQ(fake.pending(), 0);
  CUgraph graph = nullptr;
  ASSERT_EQ(api.cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  CUgraphExec exec = nullptr;
  ASSERT_EQ(api.cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
  api.cuGraphDestroy(graph);
  ASSERT_EQ(api.cuGraphLaunch(exec, stream), CUDA_SUCCESS);
  api.cuMemcpyDtoHAsync_v2(host, d, 4, stream);
  api.cuStreamSynchronize(stream);
  EXPECT_EQ(*host, 3);
  // A wait during a capture breaks it.
  api.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  EXPECT_EQ(api.cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(complaint(), "cuStreamSynchronize: this thread has a stream capturing");
  EXPECT_EQ(api.cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  // So does an allocation from the driver.
  CUdeviceptr more = 0;
  api.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  EXPECT_EQ(api.cuMemAlloc_v2(&more, 4), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(complaint(), "cuMemAlloc_v2: this thread has a stream capturing");
  EXPECT_EQ(api.cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  api.cuMemFree_v2(d);
  EXPECT_EQ(api.cuGraphLaunch(exec, stream), CUDA_SUCCESS);
  EXPECT_EQ(complaint(), "cuGraphLaunch: cuMemsetD32Async of 4 bytes touches memory that was freed");
  api.cuStreamSynchronize(stream);
  EXPECT_EQ(complaint(), "cuMemsetD32Async of 4 bytes: memory was freed before it ran");
  api.cuGraphExecDestroy(exec);
  api.cuMemFreeHost(host);
}

TEST_F(FakeDriverTest, TensorMapsAreCheckedAndReadable) {
  CUdeviceptr d = device_memory(4096);
  CUtensorMap map = {};
  uint64_t dims[] = {64, 16}, strides[] = {128};
  uint32_t box[] = {64, 16}, ones[] = {1, 1};
  auto encode = [&](CUtensorMapSwizzle swizzle) {
    return api.cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, reinterpret_cast<void*>(d), dims,
                                      strides, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                                      CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  };
  ASSERT_EQ(encode(CU_TENSOR_MAP_SWIZZLE_128B), CUDA_SUCCESS);
  FakeTensorMap m = decode(map);
  EXPECT_EQ(m.address, d);
  EXPECT_EQ(m.rank, 2);
  EXPECT_EQ(m.element_bytes, 2);
  EXPECT_EQ(m.dims[0] + 1, 64u);
  EXPECT_EQ(m.strides[0], 128u);
  EXPECT_EQ(encode(CU_TENSOR_MAP_SWIZZLE_64B), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(complaint(), "cuTensorMapEncodeTiled: the box's rows have 128 bytes; a swizzle of 64 takes no more");
  strides[0] = 120;
  EXPECT_EQ(encode(CU_TENSOR_MAP_SWIZZLE_128B), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(complaint(), "cuTensorMapEncodeTiled: stride 120; need a multiple of 16");
  api.cuMemFree_v2(d);
}

using FakeDriverDeathTest = FakeDriverTest;
TEST_F(FakeDriverDeathTest, TheHostCannotReadDeviceMemory) {
  CUdeviceptr d = device_memory(4);
  EXPECT_DEATH(
      {
        volatile int x = *reinterpret_cast<int*>(d);
        (void)x;
      },
      "");
  int seen = 0;
  fake.with_memory_open([&] { seen = *reinterpret_cast<int*>(d); });
  EXPECT_EQ(seen, -1);
  api.cuMemFree_v2(d);
}

}  // namespace
}  // namespace weft::cuda::testing
