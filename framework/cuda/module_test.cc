// Tests modules, launches, WEFT_SYNC, and captured graphs.
#include "framework/cuda/module.h"

#include <chrono>
#include <thread>

#include "framework/base/error.h"
#include "framework/base/switches.h"
#include "framework/cuda/device_allocator.h"
#include "framework/cuda/gpu.h"
#include "framework/cuda/graph_replay.h"
#include "framework/cuda/testing/fake_gpu_test.h"

namespace weft::cuda {
namespace {

using testing::error_of;
using testing::FakeLaunch;
using testing::FakeRange;

// y[i] += x over grid * block elements.
struct AddParameters {
  float* y;
  float x;
};

class ModuleTest : public testing::FakeGpuTest {
 protected:
  void SetUp() override {
    fake.add_kernel("add", {.parameter_bytes = sizeof(AddParameters),
                            .max_threads = 256,
                            .run =
                                [](const FakeLaunch& l) {
                                  const auto& p = l.as<AddParameters>();
                                  for (unsigned i = 0; i < l.grid[0] * l.block[0]; ++i) p.y[i] += p.x;
                                },
                            .touches =
                                [](const FakeLaunch& l) {
                                  return std::vector<FakeRange>{{reinterpret_cast<CUdeviceptr>(l.as<AddParameters>().y),
                                                                 l.grid[0] * l.block[0] * sizeof(float)}};
                                }});
    set_switch("WEFT_SYNC", "0");
  }
  void TearDown() override {
    module.reset();
    set_switch("WEFT_SYNC", "0");
    FakeGpuTest::TearDown();
  }
  Gpu& gpu() { return Gpu::get(0); }
  Function add(int shared = 0) {
    if (!module) module = CudaModule::load(gpu(), std::string_view("cubin of add"), "add.cubin");
    return module->function("add", shared);
  }
  static KernelLaunch launch_of(const AddParameters& p, int shared = 0) {
    KernelLaunch l;
    l.grid_x = 2;
    l.threads = 64;
    l.shared_bytes = shared;
    l.parameters = &p;
    l.parameter_bytes = sizeof p;
    l.op = "add";
    l.line = {"model.cc", 12};
    return l;
  }
  // 128 floats of zero.
  float* zeros() {
    auto* y = static_cast<float*>(gpu().allocator().allocate(512));
    gpu().make_current();
    EXPECT_EQ(driver().cuMemsetD32Async(reinterpret_cast<CUdeviceptr>(y), 0, 128, gpu().stream().handle()),
              CUDA_SUCCESS);
    return y;
  }
  float first(const float* y) {
    float v = 0;
    fake.with_memory_open([&] { v = *y; });
    return v;
  }

  std::shared_ptr<CudaModule> module;
};

TEST_F(ModuleTest, LaunchesRunInStreamOrder) {
  Function f = add();
  AddParameters p{zeros(), 1.5f};
  f.launch(gpu().stream(), launch_of(p));
  p.x = 2;  // the launch has its own copy
  f.launch(gpu().stream(), launch_of(p));
  EXPECT_EQ(fake.kernels_run().size(), 0u);
  gpu().stream().synchronize();
  EXPECT_EQ(first(p.y), 3.5f);
  EXPECT_EQ(first(p.y + 127), 3.5f);
  gpu().allocator().deallocate(p.y, 512);
}

TEST_F(ModuleTest, SharedMemoryIsAskedForOrRefusedWithTheFigures) {
  AddParameters p{zeros(), 1};
  add(200 << 10).launch(gpu().stream(), launch_of(p, 200 << 10));
  EXPECT_EQ(fake.calls("cuFuncSetAttribute"), 1);
  EXPECT_EQ(error_of([&] { add(228 << 10); }),
            "cuda: kernel add needs 233472 bytes of shared memory in a block; Fake GPU has 232448");
  EXPECT_EQ(error_of([&] { add(0).launch(gpu().stream(), launch_of(p, 100 << 10)); }),
            "cuda: kernel add (add at model.cc:12): 102400 bytes of shared memory; the function was made for 49152");
  gpu().stream().synchronize();
  gpu().allocator().deallocate(p.y, 512);
}

TEST_F(ModuleTest, WrongLaunchesAreRefusedByName) {
  Function f = add();
  AddParameters p{nullptr, 1};
  KernelLaunch l = launch_of(p);
  l.threads = 512;
  EXPECT_EQ(error_of([&] { f.launch(gpu().stream(), l); }),
            "cuda: kernel add (add at model.cc:12): 512 threads in a block; need 1 to 256");
  l = launch_of(p);
  l.grid_y = 70000;
  EXPECT_EQ(error_of([&] { f.launch(gpu().stream(), l); }),
            "cuda: kernel add (add at model.cc:12): grid [2, 70000, 1]; need 1 to [2147483647, 65535, 65535] blocks");
  l = launch_of(p);
  l.parameter_bytes = 8;
  EXPECT_NE(error_of([&] { f.launch(gpu().stream(), l); }).find("8 bytes of parameters, compiled with 16"),
            std::string::npos);
  EXPECT_EQ(error_of([&] { module->function("sub"); }), "cuda: add.cubin has no kernel sub");
  EXPECT_EQ(error_of([&] { CudaModule::load(gpu(), {}, "nothing"); }), "cuda: loading nothing: the image is empty");
  fake.fail_load(CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(error_of([&] { CudaModule::load(gpu(), std::string_view("x"), "k.cubin"); }),
            "cuda: loading k.cubin: CUDA_ERROR_NO_BINARY_FOR_GPU (no kernel image is available for execution on the "
            "device); this GPU has "
            "compute capability 9.0 and its driver is for CUDA 13.0: need kernels compiled for both");
}

TEST_F(ModuleTest, AFaultIsSeenLaterWithAHint) {
  Function f = add();
  AddParameters p{zeros(), 1};
  fake.fail_launch_after(1, CUDA_ERROR_ILLEGAL_ADDRESS);
  for (int i = 0; i < 3; ++i) f.launch(gpu().stream(), launch_of(p));
  EXPECT_EQ(error_of([&] { gpu().stream().synchronize(); }),
            "cuda: waiting for cuda:0: CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered); a kernel "
            "launched "
            "before this failed on the device: run again with WEFT_SYNC=1 to have it named");
  gpu().allocator().deallocate(p.y, 512);
}

TEST_F(ModuleTest, UnderSyncTheKernelAndTheLineAreNamed) {
  set_switch("WEFT_SYNC", "1");
  Function f = add();
  AddParameters p{zeros(), 1};
  fake.fail_launch_after(1, CUDA_ERROR_ILLEGAL_ADDRESS);
  f.launch(gpu().stream(), launch_of(p));
  EXPECT_EQ(fake.pending(), 0);
  EXPECT_EQ(error_of([&] { f.launch(gpu().stream(), launch_of(p)); }),
            "cuda: kernel add (add at model.cc:12) failed on cuda:0: CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory "
            "access was "
            "encountered)");
  gpu().allocator().deallocate(p.y, 512);
}

TEST_F(ModuleTest, ALaunchKnowsTheLiveBlocksItsParametersPointInto) {
  std::vector<FakeRange> seen;
  fake.add_kernel("look",
                  {.parameter_bytes = sizeof(AddParameters), .run = [&](const FakeLaunch& l) { seen = l.pointed; }});
  fake.set_live_memory([&](CUdeviceptr p) -> std::optional<FakeRange> {
    auto [begin, bytes] = gpu().allocator().holding(reinterpret_cast<const void*>(p));
    if (!begin) return std::nullopt;
    return FakeRange{reinterpret_cast<CUdeviceptr>(begin), static_cast<size_t>(bytes)};
  });
  auto loaded = CudaModule::load(gpu(), std::string_view("x"), "x");
  auto* y = static_cast<float*>(gpu().allocator().allocate(500));
  AddParameters p{y + 3, 1};
  loaded->function("look").launch(gpu().stream(), launch_of(p));
  gpu().allocator().deallocate(y, 500);  // after the launch, in stream order
  gpu().stream().synchronize();
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].address, reinterpret_cast<CUdeviceptr>(y));
  EXPECT_EQ(seen[0].bytes, 500u);
  loaded->function("look").launch(gpu().stream(), launch_of(p));
  gpu().stream().synchronize();
  EXPECT_TRUE(seen.empty());
}

TEST_F(ModuleTest, UnderSyncALibrarysWorkIsNamedToo) {
  set_switch("WEFT_SYNC", "1");
  check_queued(gpu().stream(), "cuBLASLt", "dot", {"model.cc", 4});
  gpu().make_current();
  auto loaded = CudaModule::load(gpu(), std::string_view("x"), "x");
  Function f = loaded->function("add");
  AddParameters p{zeros(), 1};
  void* parameters[] = {&p};
  fake.fail_launch_after(0, CUDA_ERROR_MISALIGNED_ADDRESS);
  driver().cuLaunchKernel(f.handle(), 1, 1, 1, 32, 1, 1, 0, gpu().stream().handle(), parameters,
                          nullptr);  // as a library does
  EXPECT_EQ(error_of([&] {
              check_queued(gpu().stream(), "cuBLASLt", "dot", {"model.cc", 4});
            }),
            "cuda: cuBLASLt (dot at model.cc:4) failed on cuda:0: CUDA_ERROR_MISALIGNED_ADDRESS (misaligned address)");
  gpu().allocator().deallocate(p.y, 512);
}

TEST_F(ModuleTest, AKernelThatThrowsIsAFault) {
  fake.add_kernel("bad", {.run = [](const FakeLaunch&) { weft::internal::fail(Code::kOutOfRange, "element 9 of 8"); }});
  module = CudaModule::load(gpu(), std::string_view("x"), "bad.cubin");
  module->function("bad").launch(gpu().stream(), {});
  EXPECT_NE(error_of([&] { gpu().stream().synchronize(); }).find("CUDA_ERROR_ILLEGAL_ADDRESS"), std::string::npos);
  EXPECT_EQ(complaint(), "kernel bad: element 9 of 8");
}

TEST_F(ModuleTest, AGraphReplaysWhatWasCaptured) {
  Function f = add();
  AddParameters p{zeros(), 1}, q{p.y, 10};
  gpu().stream().synchronize();
  GraphReplay g = GraphReplay::capture(gpu().stream(), [&] {
    EXPECT_TRUE(gpu().stream().capturing());
    f.launch(gpu().stream(), launch_of(p));
    driver().cuMemsetD32Async(reinterpret_cast<CUdeviceptr>(p.y + 127), 0, 1, gpu().stream().handle());
    f.launch(gpu().stream(), launch_of(q));
  });
  EXPECT_EQ(fake.pending(), 0);
  EXPECT_EQ(g.size(), 3u);
  ASSERT_EQ(g.kernels(), 2);
  g.launch(gpu().stream());
  g.launch(gpu().stream());
  gpu().stream().synchronize();
  EXPECT_EQ(first(p.y), 22);
  EXPECT_EQ(first(p.y + 127), 10);

  AddParameters changed{p.y, 100};
  g.set_parameters(1, std::as_bytes(std::span(&changed, 1)));
  g.launch(gpu().stream());
  gpu().stream().synchronize();
  EXPECT_EQ(first(p.y), 123);
  EXPECT_EQ(first(p.y + 127), 100);
  gpu().allocator().deallocate(p.y, 512);
}

TEST_F(ModuleTest, AGraphIsCapturedAgainForOtherAddresses) {
  Function f = add();
  AddParameters p{zeros(), 1}, q{zeros(), 2};
  gpu().stream().synchronize();
  int launches = 1;
  auto work = [&] {
    for (int i = 0; i < launches; ++i) f.launch(gpu().stream(), launch_of(p));
  };
  GraphReplay g = GraphReplay::capture(gpu().stream(), work);
  std::swap(p, q);
  EXPECT_TRUE(g.recapture(gpu().stream(), work));
  g.launch(gpu().stream());
  gpu().stream().synchronize();
  EXPECT_EQ(first(p.y), 2);
  EXPECT_EQ(first(q.y), 0);
  AddParameters again{q.y, 7};
  g.set_parameters(0, std::as_bytes(std::span(&again, 1)));
  launches = 3;
  EXPECT_FALSE(g.recapture(gpu().stream(), work));  // another shape of work
  EXPECT_EQ(g.kernels(), 3);
  g.launch(gpu().stream());
  gpu().stream().synchronize();
  EXPECT_EQ(first(p.y), 8);
  gpu().allocator().deallocate(p.y, 512);
  gpu().allocator().deallocate(q.y, 512);
}

TEST_F(ModuleTest, ACaptureAcrossStreams) {
  Function f = add();
  AddParameters p{zeros(), 1}, q{zeros(), 5};
  gpu().stream().synchronize();
  Stream side(gpu());
  GraphReplay g = GraphReplay::capture(gpu().stream(), [&] {
    side.wait(gpu().stream());
    f.launch(side, launch_of(p));
    f.launch(gpu().stream(), launch_of(q));
    gpu().stream().wait(side);
  });
  EXPECT_EQ(g.kernels(), 2);
  EXPECT_FALSE(side.capturing());
  g.launch(gpu().stream());
  gpu().stream().synchronize();
  EXPECT_EQ(first(p.y), 1);
  EXPECT_EQ(first(q.y), 5);
  gpu().allocator().deallocate(p.y, 512);
  gpu().allocator().deallocate(q.y, 512);
}

// The driver breaks a capture when another thread waits for the device: such a wait must come after the capture.
TEST_F(ModuleTest, AWaitForTheDeviceLetsACaptureFinish) {
  Stream side(gpu());
  auto* y = static_cast<float*>(gpu().allocator().allocate(512));
  AddParameters p{y, 1};
  const Function f = add();
  std::thread other;
  {
    GraphReplay graph = GraphReplay::capture(side, [&] {
      other = std::thread([&] { gpu().synchronize(); });
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      f.launch(side, launch_of(p));
      EXPECT_NE(error_of([&] { gpu().synchronize(); }).find("while a graph is captured"), std::string::npos);
    });
    other.join();
    EXPECT_EQ(graph.kernels(), 1);
  }
  gpu().allocator().deallocate(y, 512);
}

TEST_F(ModuleTest, ACaptureThatThrowsLeavesTheStreamUsable) {
  Function f = add();
  AddParameters p{zeros(), 1};
  gpu().stream().synchronize();
  EXPECT_EQ(error_of([&] {
              GraphReplay::capture(gpu().stream(), [&] {
                f.launch(gpu().stream(), launch_of(p));
                weft::internal::fail(Code::kInvalidArgument, "no");
              });
            }),
            "no");
  EXPECT_FALSE(gpu().stream().capturing());
  EXPECT_NE(error_of([&] {
              GraphReplay::capture(gpu().stream(), [&] { gpu().stream().synchronize(); });
            }).find("CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"),
            std::string::npos);
  EXPECT_EQ(complaint(), "cuStreamSynchronize: this thread has a stream capturing");
  f.launch(gpu().stream(), launch_of(p));
  gpu().stream().synchronize();
  EXPECT_EQ(first(p.y), 1);
  gpu().allocator().deallocate(p.y, 512);
}

}  // namespace
}  // namespace weft::cuda
