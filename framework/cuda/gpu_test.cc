#include "framework/cuda/gpu.h"

#include <thread>

#include "framework/cuda/stream.h"
#include "framework/cuda/testing/fake_gpu_test.h"

namespace weft::cuda {
namespace {

using testing::error_of;

class GpuTest : public testing::FakeGpuTest {
 protected:
  GpuTest() : FakeGpuTest({}, 2) {}
};

TEST_F(GpuTest, Properties) {
  const GpuProperties& p = Gpu::get(1).properties();
  EXPECT_EQ(p.sm, 90);
  EXPECT_EQ(p.multiprocessors, 132);
  EXPECT_EQ(p.shared_per_block_optin, 227 << 10);
  EXPECT_EQ(p.pci_bus, "0000:01:00.0");
  EXPECT_NEAR(p.memory_rate(), 3.35e12, 0.01e12);  // an H100's HBM3
  EXPECT_EQ(p.to_string(), "Fake GPU, compute capability 9.0, 132 multiprocessors, 256.0 MiB");
  EXPECT_EQ(Gpu::get(1).device(), Device::cuda(1));
}

TEST_F(GpuTest, PropertiesNeedNoContext) {
  EXPECT_EQ(gpu_properties(0).name, "Fake GPU");
  EXPECT_EQ(fake.calls("cuDevicePrimaryCtxRetain"), 0);
}

TEST_F(GpuTest, AnIndexThatIsNotThere) {
  EXPECT_EQ(error_of([] { Gpu::get(2); }), "cuda:2: this machine has 2 GPUs; need an index below that");
  EXPECT_EQ(error_of([] { Gpu::get(-1); }), "cuda:-1: this machine has 2 GPUs; need an index below that");
}

TEST_F(GpuTest, ContextsFollowTheThread) {
  Gpu &a = Gpu::get(0), &b = Gpu::get(1);
  Event event(a);
  event.record(a.stream());
  b.stream().synchronize();
  a.stream().synchronize();
  std::thread([&] {
    EXPECT_TRUE(event.done());  // a thread without a context
    EXPECT_TRUE(b.stream().idle());
  }).join();
  const int sets = fake.calls("cuCtxSetCurrent");
  for (int i = 0; i < 10; ++i) a.make_current();
  EXPECT_LE(fake.calls("cuCtxSetCurrent"), sets + 1);
}

TEST_F(GpuTest, StreamsAndEvents) {
  Gpu& gpu = Gpu::get(0);
  Stream other(gpu, -1);
  Event start(gpu, true), end(gpu, true);
  start.record(gpu.stream());
  end.record(gpu.stream());
  EXPECT_FALSE(end.done());
  EXPECT_GT(end.ms_since(start), 0);
  EXPECT_TRUE(end.done());
  other.wait(gpu.stream());
  EXPECT_FALSE(other.capturing());
  other.synchronize();
  EXPECT_TRUE(other.idle());
}

TEST_F(GpuTest, BytesText) {
  EXPECT_EQ(bytes_text(1), "1 byte");
  EXPECT_EQ(bytes_text(1000), "1000 bytes");
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(bytes_text(int64_t{80} << 30), "80.0 GiB");
}

}  // namespace
}  // namespace weft::cuda
