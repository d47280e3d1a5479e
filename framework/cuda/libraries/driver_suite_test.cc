// Tests the runtime end to end, on the fake driver and, if there is a GPU, on the real one. Kernels are PTX, which the
// real driver compiles itself; the fake driver finds them by name.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "framework/base/switches.h"
#include "framework/cuda/device_allocator.h"
#include "framework/cuda/gpu.h"
#include "framework/cuda/graph_replay.h"
#include "framework/cuda/libraries/driver_error.h"
#include "framework/cuda/module.h"
#include "framework/cuda/testing/fake_gpu_test.h"
#include "framework/cuda/transfer/copy.h"
#include "framework/cuda/transfer/pinned_pool.h"

namespace weft::cuda {
namespace {

using testing::error_of;
using testing::FakeLaunch;

// y[i] += x for i < n.
struct AddParameters {
  float* y;
  float x;
  int n;
};

// `add` as above; `stray` writes to address 16, which belongs to no allocation.
constexpr char kPtx[] = R"(
.version 7.0
.target sm_80
.address_size 64

.visible .entry add(.param .align 8 .b8 p[16])
{
  .reg .pred %q;
  .reg .b32 %i, %n, %block, %size;
  .reg .b64 %y, %at;
  .reg .f32 %x, %v;
  ld.param.u64 %y, [p];
  ld.param.f32 %x, [p+8];
  ld.param.u32 %n, [p+12];
  mov.u32 %block, %ctaid.x;
  mov.u32 %size, %ntid.x;
  mov.u32 %i, %tid.x;
  mad.lo.u32 %i, %block, %size, %i;
  setp.ge.u32 %q, %i, %n;
  @%q bra DONE;
  cvta.to.global.u64 %y, %y;
  mul.wide.u32 %at, %i, 4;
  add.u64 %at, %y, %at;
  ld.global.f32 %v, [%at];
  add.rn.f32 %v, %v, %x;
  st.global.f32 [%at], %v;
DONE:
  ret;
}

.visible .entry stray(.param .align 8 .b8 p[16])
{
  .reg .b64 %at;
  .reg .b32 %v;
  mov.u64 %at, 16;
  mov.u32 %v, 1;
  st.global.u32 [%at], %v;
  ret;
}
)";

enum class Which { kFake, kReal };

class DriverSuite : public ::testing::TestWithParam<Which> {
 protected:
  void SetUp() override {
    set_switch("WEFT_SYNC", "0");
    if (GetParam() == Which::kReal) {
      if (!availability().ok) GTEST_SKIP() << availability().why;
      return;
    }
    fake.emplace(testing::FakeGpu{}, 1);
    fake->add_kernel("add", {.parameter_bytes = sizeof(AddParameters), .run = [](const FakeLaunch& l) {
                               const auto& p = l.as<AddParameters>();
                               for (unsigned i = 0; i < l.grid[0] * l.block[0] && static_cast<int>(i) < p.n; ++i)
                                 p.y[i] += p.x;
                             }});
    fake->add_kernel("stray", {.parameter_bytes = sizeof(AddParameters), .run = [](const FakeLaunch&) {
                                 weft::internal::fail(Code::kOutOfRange, "address 16");
                               }});
    in_place.emplace(fake->table());
  }
  void TearDown() override {
    set_switch("WEFT_SYNC", "0");
    module.reset();
    if (!fake) return;
    in_place.reset();
    std::vector<std::string> complaints = fake->take_complaints();
    complaints.erase(std::remove(complaints.begin(), complaints.end(), "kernel stray: address 16"), complaints.end());
    EXPECT_TRUE(complaints.empty()) << complaints[0];
    EXPECT_EQ(fake->leaks(), "");
  }

  Gpu& gpu() { return Gpu::get(0); }
  Stream& stream() { return gpu().stream(); }
  Function function(const char* name) {
    if (!module) module = CudaModule::load(gpu(), kPtx, "suite.ptx");
    return module->function(name);
  }
  static KernelLaunch launch_of(const AddParameters& p) {
    KernelLaunch l;
    l.grid_x = static_cast<uint32_t>((p.n + 127) / 128);
    l.threads = 128;
    l.parameters = &p;
    l.parameter_bytes = sizeof p;
    l.op = "add";
    l.line = {"model.cc", 7};
    return l;
  }

  // Device memory of n floats 0, 1, 2, ...
  struct Floats {
    Gpu& gpu;
    int64_t n;
    float* data;
    Floats(Gpu& g, int64_t count) : gpu(g), n(count), data(static_cast<float*>(g.allocator().allocate(4 * count))) {
      std::vector<float> host(n);
      std::iota(host.begin(), host.end(), 0.0f);
      copy_to_device({host.data(), kFloat32, {n}, {1}}, view(), gpu.stream());
    }
    ~Floats() { gpu.allocator().deallocate(data, 4 * n); }
    StridedView view() const { return {data, kFloat32, {n}, {1}}; }
    std::vector<float> read() const {
      std::vector<float> host(n, -1.0f);
      copy_to_host(view(), {host.data(), kFloat32, {n}, {1}}, gpu.stream());
      return host;
    }
  };
  // i + x, for i < n.
  static std::vector<float> counted(int64_t n, float x) {
    std::vector<float> v(n);
    std::iota(v.begin(), v.end(), x);
    return v;
  }

  std::optional<testing::FakeDriver> fake;
  std::optional<ScopedDriver> in_place;
  std::shared_ptr<CudaModule> module;
};

TEST_P(DriverSuite, Properties) {
  const GpuProperties& p = gpu().properties();
  EXPECT_FALSE(p.name.empty());
  EXPECT_FALSE(p.pci_bus.empty());
  EXPECT_GE(p.sm, 30);
  EXPECT_GE(p.multiprocessors, 1);
  EXPECT_EQ(p.warp, 32);
  EXPECT_GE(p.shared_per_block_optin, p.shared_per_block);
  EXPECT_GT(p.memory, 0);
  EXPECT_GE(p.grid_y, 65535);
}

TEST_P(DriverSuite, KernelsSeeTheirParameters) {
  if (gpu().properties().sm < 80) GTEST_SKIP() << "the kernels are for compute capability 8.0 and later";
  Floats y(gpu(), 1000);
  Function f = function("add");
  AddParameters p{y.data, 0.5f, 1000};
  f.launch(stream(), launch_of(p));
  p = {y.data, 2, 10};
  f.launch(stream(), launch_of(p));
  std::vector<float> want = counted(1000, 0.5f);
  for (int i = 0; i < 10; ++i) want[i] += 2;
  EXPECT_EQ(y.read(), want);
}

TEST_P(DriverSuite, CopiesOfEveryLayout) {
  Floats y(gpu(), 24);
  struct TestView {
    Shape shape, strides;
    int64_t offset;
  };
  for (const TestView& l : {TestView{{6, 4}, {4, 1}, 0}, TestView{{4, 6}, {1, 4}, 0}, TestView{{3, 2}, {8, 1}, 2},
                            TestView{{6, 4}, {0, 1}, 4}, TestView{{24}, {-1}, 23}, TestView{{2, 3, 2}, {12, 1, 4}, 0},
                            TestView{{3}, {8}, 1}}) {
    const int64_t n = l.shape.numel();
    std::vector<float> want;
    for (int64_t i = 0; i < n; ++i) {
      int64_t at = l.offset, rest = i;
      for (int d = l.shape.size() - 1; d >= 0; --d) {
        at += rest % l.shape[d] * l.strides[d];
        rest /= l.shape[d];
      }
      want.push_back(static_cast<float>(at));
    }
    StridedView from{y.data + l.offset, kFloat32, l.shape, l.strides};
    std::vector<float> host(n, -1.0f);
    copy_to_host(from, {host.data(), kFloat32, l.shape, contiguous_strides(l.shape)}, stream());
    EXPECT_EQ(host, want) << str_cat("to the host ", l.shape, l.strides);
    Floats z(gpu(), n);
    copy_on_device(from, {z.data, kFloat32, l.shape, contiguous_strides(l.shape)}, stream());
    EXPECT_EQ(z.read(), want) << str_cat("on the device ", l.shape, l.strides);
  }
}

TEST_P(DriverSuite, LargeCopies) {
  const int64_t n = 3 * kCopyPiece / 4 + 5;  // four pieces
  Floats y(gpu(), n);
  EXPECT_EQ(y.read(), counted(n, 0));
  gpu().pinned().empty_cache();
  EXPECT_EQ(gpu().pinned().reserved(), 0);
}

TEST_P(DriverSuite, StreamsAndEvents) {
  Stream side(gpu());
  Event start(gpu(), true), end(gpu(), true);
  Floats y(gpu(), 1 << 20);
  start.record(stream());
  side.wait(stream());
  gpu().make_current();
  check(driver().cuMemsetD32Async(reinterpret_cast<CUdeviceptr>(y.data), 0x3f800000, y.n, side.handle()), "filling");
  stream().wait(side);
  end.record(stream());
  EXPECT_EQ(y.read(), std::vector<float>(y.n, 1.0f));
  EXPECT_GE(end.ms_since(start), 0);
  EXPECT_TRUE(end.done());
  EXPECT_TRUE(side.idle());
  EXPECT_TRUE(stream().idle());
}

TEST_P(DriverSuite, MemoryComesAndGoes) {
  DeviceAllocator& a = gpu().allocator();
  a.empty_cache();
  const int64_t before = a.reserved();
  void* p = a.allocate(30 << 20);
  void* q = a.allocate(1000);
  EXPECT_EQ(a.stats().live, (30 << 20) + 1024);
  a.deallocate(p, 30 << 20);
  EXPECT_EQ(a.allocate(29 << 20), p);
  a.deallocate(p, 29 << 20);
  a.deallocate(q, 1000);
  a.empty_cache();
  EXPECT_EQ(a.reserved(), before);
  const int64_t more = 2 * gpu().properties().memory;
  EXPECT_EQ(error_of([&] { a.allocate(more); }).find("out of memory on cuda:0: asked for "), 0u);
  a.deallocate(a.allocate(100), 100);  // the allocator is still usable
}

TEST_P(DriverSuite, GraphsReplay) {
  if (gpu().properties().sm < 80) GTEST_SKIP() << "the kernels are for compute capability 8.0 and later";
  Function f = function("add");
  Floats y(gpu(), 500), z(gpu(), 500);
  stream().synchronize();
  AddParameters p{y.data, 1, 500}, q{y.data, 10, 500};
  int launches = 1;
  auto work = [&] {
    f.launch(stream(), launch_of(p));
    for (int i = 0; i < launches; ++i) f.launch(stream(), launch_of(q));
  };
  GraphReplay g = GraphReplay::capture(stream(), work);
  EXPECT_FALSE(stream().capturing());
  EXPECT_EQ(g.size(), 2u);
  ASSERT_EQ(g.kernels(), 2);
  EXPECT_EQ(y.read(), counted(500, 0));
  g.launch(stream());
  g.launch(stream());
  EXPECT_EQ(y.read(), counted(500, 22));
  AddParameters other{z.data, 100, 500};
  g.set_parameters(1, std::as_bytes(std::span(&other, 1)));
  g.launch(stream());
  EXPECT_EQ(y.read(), counted(500, 23));
  EXPECT_EQ(z.read(), counted(500, 100));
  p = {z.data, 1000, 500};
  EXPECT_TRUE(g.recapture(stream(), work));
  g.launch(stream());
  EXPECT_EQ(z.read(), counted(500, 1100));
  EXPECT_EQ(y.read(), counted(500, 33));
  g.set_parameters(1, std::as_bytes(std::span(&other, 1)));  // after an update by capture
  g.launch(stream());
  EXPECT_EQ(z.read(), counted(500, 2200));
  launches = 2;
  EXPECT_FALSE(g.recapture(stream(), work));
  EXPECT_EQ(g.kernels(), 3);
  g.launch(stream());
  EXPECT_EQ(y.read(), counted(500, 53));
  stream().synchronize();
}

TEST_P(DriverSuite, GraphsOverTwoStreams) {
  if (gpu().properties().sm < 80) GTEST_SKIP() << "the kernels are for compute capability 8.0 and later";
  Function f = function("add");
  Floats y(gpu(), 500), z(gpu(), 500);
  stream().synchronize();
  Stream side(gpu());
  AddParameters p{y.data, 1, 500}, q{z.data, 2, 500};
  GraphReplay g = GraphReplay::capture(stream(), [&] {
    side.wait(stream());
    f.launch(side, launch_of(p));
    f.launch(stream(), launch_of(q));
    stream().wait(side);
  });
  EXPECT_EQ(g.kernels(), 2);
  g.launch(stream());
  EXPECT_EQ(y.read(), counted(500, 1));
  EXPECT_EQ(z.read(), counted(500, 2));
}

// A fault ends a process's use of the device, so each one is tested in its own process.
using DriverSuiteDeathTest = DriverSuite;
TEST_P(DriverSuiteDeathTest, AFaultIsNamedUnderSync) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  auto run = [&](const char* sync) {
    set_switch("WEFT_SYNC", sync);
    std::string error = error_of([&] {
      if (gpu().properties().sm < 80) weft::internal::fail(Code::kUnavailable, "skip");
      AddParameters p{nullptr, 0, 1};
      KernelLaunch l = launch_of(p);
      l.op = "stray";
      function("stray").launch(stream(), l);
      stream().synchronize();
    });
    std::fprintf(stderr, "%s\n", error.c_str());
    std::_Exit(3);
  };
  EXPECT_EXIT(
      run("0"), ::testing::ExitedWithCode(3),
      "cuda: waiting for cuda:0: CUDA_ERROR_ILLEGAL_ADDRESS .*run again with WEFT_SYNC=1 to have it named|skip");
  EXPECT_EXIT(run("1"), ::testing::ExitedWithCode(3),
              "cuda: kernel stray .stray at model.cc:7. failed on cuda:0: CUDA_ERROR_ILLEGAL_ADDRESS|skip");
}

INSTANTIATE_TEST_SUITE_P(On, DriverSuite, ::testing::Values(Which::kFake, Which::kReal),
                         [](const auto& info) { return info.param == Which::kFake ? "Fake" : "Real"; });
INSTANTIATE_TEST_SUITE_P(On, DriverSuiteDeathTest, ::testing::Values(Which::kFake, Which::kReal),
                         [](const auto& info) { return info.param == Which::kFake ? "Fake" : "Real"; });

}  // namespace
}  // namespace weft::cuda
