#include "framework/cuda/device_allocator.h"

#include <random>

#include "framework/base/error.h"
#include "framework/cuda/gpu.h"
#include "framework/cuda/graph_replay.h"
#include "framework/cuda/libraries/driver_error.h"
#include "framework/cuda/testing/fake_gpu_test.h"
#include "framework/cuda/transfer/pinned_pool.h"

namespace weft::cuda {
namespace {

using testing::error_of;
constexpr int64_t kMiB = int64_t{1} << 20;

class DeviceAllocatorTest : public testing::FakeGpuTest {
 protected:
  Gpu& gpu() { return Gpu::get(0); }
  DeviceAllocator& allocator() { return gpu().allocator(); }
  void fill(void* p, int value, int64_t bytes, Stream& stream) {
    gpu().make_current();
    check(driver().cuMemsetD32Async(reinterpret_cast<CUdeviceptr>(p), value, bytes / 4, stream.handle()), "filling");
  }
};

TEST_F(DeviceAllocatorTest, CountsAndReuses) {
  void* a = allocator().allocate(1000);
  MemoryStats s = allocator().stats();
  EXPECT_EQ(s.live, 1024);
  EXPECT_EQ(s.allocations, 1);
  EXPECT_EQ(s.system_allocations, 1);
  EXPECT_EQ(s.cached, 2 * kMiB - 1024);
  EXPECT_EQ(reinterpret_cast<uint64_t>(a) % 512, 0u);
  allocator().deallocate(a, 1000);
  void* b = allocator().allocate(900);
  EXPECT_EQ(a, b);  // at once: later work of the stream comes after it
  s = allocator().stats();
  EXPECT_EQ(s.live, 960);
  EXPECT_EQ(s.peak, 1024);
  EXPECT_EQ(s.system_allocations, 1);
  allocator().reset_peak();
  EXPECT_EQ(allocator().stats().peak, 960);
  allocator().deallocate(b, 900);
  EXPECT_EQ(allocator().stats().live, 0);
  EXPECT_EQ(fake.allocated_bytes(), static_cast<size_t>(2 * kMiB));
  allocator().empty_cache();
  EXPECT_EQ(fake.allocated_bytes(), 0u);
  EXPECT_EQ(allocator().stats().cached, 0);
  EXPECT_EQ(allocator().reserved(), 0);
}

TEST_F(DeviceAllocatorTest, KnowsItsLiveBlocks) {
  auto* a = static_cast<char*>(allocator().allocate(1000));
  const std::pair<const void*, int64_t> none{nullptr, 0}, block{a, 1000};
  EXPECT_EQ(allocator().holding(a), block);
  EXPECT_EQ(allocator().holding(a + 999), block);
  EXPECT_EQ(allocator().holding(a + 1024), none);
  EXPECT_EQ(allocator().holding(&block), none);
  EXPECT_EQ(allocator().holding(nullptr), none);
  allocator().deallocate(a, 1000);
  EXPECT_EQ(allocator().holding(a), none);
}

TEST_F(DeviceAllocatorTest, NeighboursJoinAgain) {
  std::vector<void*> p;
  for (int i = 0; i < 5; ++i) p.push_back(allocator().allocate(4 * kMiB));  // one segment of 20 MiB
  EXPECT_EQ(fake.calls("cuMemAlloc_v2"), 1);
  for (int i : {1, 3, 0, 4, 2}) allocator().deallocate(p[i], 4 * kMiB);
  void* all = allocator().allocate(20 * kMiB);
  EXPECT_EQ(all, p[0]);
  EXPECT_EQ(fake.calls("cuMemAlloc_v2"), 1);
  allocator().deallocate(all, 20 * kMiB);
}

// Blocks allocated at random never overlap, and the statistics add up.
TEST_F(DeviceAllocatorTest, RandomUse) {
  std::mt19937 rng(5);
  std::map<char*, int64_t> live;
  int64_t bytes = 0;
  for (int i = 0; i < 3000; ++i) {
    if (live.size() > 40 || (rng() % 3 == 0 && !live.empty())) {
      auto it = std::next(live.begin(), rng() % live.size());
      allocator().deallocate(it->first, it->second);
      bytes -= (it->second + 63) / 64 * 64;
      live.erase(it);
    } else {
      int64_t n = rng() % 4 == 0 ? 1 + rng() % (6 * kMiB) : 1 + rng() % 5000;
      auto* p = static_cast<char*>(allocator().allocate(n));
      auto next = live.lower_bound(p);
      if (next != live.end()) {
        ASSERT_LE(p + n, next->first);
      }
      if (next != live.begin()) {
        ASSERT_LE(std::prev(next)->first + std::prev(next)->second, p);
      }
      live[p] = n;
      bytes += (n + 63) / 64 * 64;
    }
    ASSERT_EQ(allocator().stats().live, bytes);
  }
  for (auto& [p, n] : live) allocator().deallocate(p, n);
  allocator().empty_cache();
  EXPECT_EQ(fake.allocated_bytes(), 0u);
}

TEST_F(DeviceAllocatorTest, FreedMemoryOfOtherStreamsWaits) {
  Stream side(gpu());
  void* a = allocator().allocate(4096);
  fill(a, 1, 4096, side);
  allocator().used_by(static_cast<char*>(a) + 100, side);
  allocator().deallocate(a, 4096);
  void* b = allocator().allocate(4096);
  EXPECT_NE(a, b);  // the fill has not run
  side.synchronize();
  void* c = allocator().allocate(4096);
  EXPECT_EQ(a, c);
  allocator().deallocate(b, 4096);
  allocator().deallocate(c, 4096);
  // Returning memory to the driver waits for it too.
  void* d = allocator().allocate(30 * kMiB);
  fill(d, 1, 1024, side);
  allocator().used_by(d, side);
  allocator().deallocate(d, 30 * kMiB);
  allocator().empty_cache();
  EXPECT_EQ(fake.pending(), 0);
  EXPECT_EQ(fake.allocated_bytes(), 0u);
}

TEST_F(DeviceAllocatorTest, PendingWorkIsDoneBeforeMemoryGoesToTheDriver) {
  void* a = allocator().allocate(30 * kMiB);
  fill(a, 1, 1024, gpu().stream());
  allocator().deallocate(a, 30 * kMiB);
  allocator().empty_cache();  // the fake complains about memory freed under pending work
  EXPECT_EQ(fake.pending(), 0);
}

TEST_F(DeviceAllocatorTest, PoisonIsInStreamOrder) {
  allocator().set_poison(true);
  auto* a = static_cast<int*>(allocator().allocate(512));
  fill(a, 7, 512, gpu().stream());
  allocator().deallocate(a, 512);
  auto* b = static_cast<int*>(allocator().allocate(512));
  ASSERT_EQ(a, b);
  gpu().stream().synchronize();
  int seen = 0;
  fake.with_memory_open([&] { seen = *b; });
  EXPECT_EQ(seen, -1);
  allocator().set_poison(false);
  allocator().deallocate(b, 512);
}

TEST_F(DeviceAllocatorTest, CachedMemoryIsGivenBackBeforeItFails) {
  void* a = allocator().allocate(150 * kMiB);
  allocator().deallocate(a, 150 * kMiB);
  void* b = allocator().allocate(200 * kMiB);  // a segment of 256 MiB, too large beside the cached one
  EXPECT_EQ(fake.allocated_bytes(), static_cast<size_t>(200 * kMiB));
  allocator().deallocate(b, 200 * kMiB);
  fake.fail_allocation_after(0);
  void* c = allocator().allocate(210 * kMiB);  // another process freed memory: tried again
  allocator().deallocate(c, 210 * kMiB);
}

TEST_F(DeviceAllocatorTest, TheLastMemoryIsTakenWithoutRounding) {
  void* a = allocator().allocate(247 * kMiB);  // rounded to 248; 8 are left, less than a segment
  void* b = allocator().allocate(5 * kMiB);
  allocator().deallocate(a, 247 * kMiB);
  allocator().deallocate(b, 5 * kMiB);
}

TEST_F(DeviceAllocatorTest, OutOfMemorySaysWhatWasAskedAndWhatIsHeld) {
  void* a = allocator().allocate(200 * kMiB);
  void* b = allocator().allocate(1000);
  EXPECT_EQ(error_of([&] { allocator().allocate(100 * kMiB); }),
            "out of memory on cuda:0: asked for 100.0 MiB (104857600 bytes); the driver has no more; the device has "
            "54.0 MiB free of "
            "256.0 MiB; held here: 200.0 MiB live, 2.0 MiB cached; largest live tensors: one without a name 200.0 MiB, "
            "one without a "
            "name 1.0 KiB");
  allocator().set_name(static_cast<char*>(a) + 5, "wte.weight");
  allocator().set_name(this, "of the host");
  EXPECT_NE(error_of([&] {
              allocator().allocate(100 * kMiB);
            }).find("; largest live tensors: wte.weight 200.0 MiB, one without a name 1.0 KiB"),
            std::string::npos);
  try {
    allocator().allocate(100 * kMiB);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kResourceExhausted);
  }
  void* c = allocator().allocate(kMiB);  // still of use
  allocator().deallocate(c, kMiB);
  allocator().deallocate(a, 200 * kMiB);
  a = allocator().allocate(200 * kMiB);
  EXPECT_EQ(error_of([&] { allocator().allocate(100 * kMiB); }).find("wte.weight"),
            std::string::npos);  // the name was removed with the block
  allocator().deallocate(a, 200 * kMiB);
  allocator().deallocate(b, 1000);
}

TEST_F(DeviceAllocatorTest, ALimit) {
  allocator().set_limit(2000);
  void* a = allocator().allocate(1000);
  std::string error = error_of([&] { allocator().allocate(1000); });
  EXPECT_EQ(error.find(
                "out of memory on cuda:0: asked for 1000 bytes (1000 bytes); the limit of 2.0 KiB set for this device"),
            0u)
      << error;
  allocator().set_limit(0);
  void* b = allocator().allocate(1000);
  allocator().deallocate(a, 1000);
  allocator().deallocate(b, 1000);
}

TEST_F(DeviceAllocatorTest, UnderCaptureOnlyCachedMemoryIsThere) {
  void* a = allocator().allocate(4096);
  GraphReplay g = GraphReplay::capture(gpu().stream(), [&] {
    void* b = allocator().allocate(4096);  // a block of the same segment
    fill(b, 0, 4096, gpu().stream());
    allocator().deallocate(b, 4096);
    EXPECT_EQ(error_of([&] { allocator().allocate(5 * kMiB); }),
              "cuda: 5.0 MiB of device memory are needed while a graph is captured, but no free block is large "
              "enough; need to run "
              "the work once before, or to allocate outside of the capture");
  });
  allocator().deallocate(a, 4096);
}

TEST_F(DeviceAllocatorTest, OtherStreamsUnderCapture) {
  Stream side(gpu());
  void* a = allocator().allocate(4096);
  void* b = allocator().allocate(4096);
  fill(b, 1, 4096, side);
  allocator().used_by(b, side);
  allocator().deallocate(b, 4096);  // waits for the fill
  GraphReplay g = GraphReplay::capture(gpu().stream(), [&] {
    EXPECT_TRUE(thread_is_capturing());
    side.wait(gpu().stream());
    fill(a, 0, 4096, side);
    allocator().used_by(a, side);
    allocator().deallocate(a, 4096);
    void* c = allocator().allocate(4096);  // neither: events cannot be queried now
    EXPECT_TRUE(c != a && c != b);
    allocator().deallocate(c, 4096);
    EXPECT_EQ(error_of([&] { gpu().pinned().take(1); }),
              "cuda: copying between host and device while a graph is captured; need to do so before or after");
    EXPECT_EQ(error_of([&] { allocator().empty_cache(); }), "cuda: empty_cache while a graph is captured");
    gpu().stream().wait(side);
  });
  EXPECT_FALSE(thread_is_capturing());
  side.synchronize();
  allocator().deallocate(allocator().allocate(64), 64);  // settles the waiting blocks
  allocator().empty_cache();
  EXPECT_EQ(fake.allocated_bytes(), 0u);
}

TEST_F(DeviceAllocatorTest, ADeviceThatFailedStillTakesItsMemoryBack) {
  fake.add_kernel("k", {});
  Stream side(gpu());
  void* a = allocator().allocate(4096);
  allocator().used_by(a, side);
  {
    auto module = CudaModule::load(gpu(), std::string_view("x"), "k");
    fake.fail_launch_after(0, CUDA_ERROR_LAUNCH_FAILED);
    module->function("k").launch(gpu().stream(), {});
    EXPECT_NE(error_of([&] { gpu().stream().synchronize(); }), "");
  }
  allocator().deallocate(a, 4096);  // as a destructor would: must not throw
  EXPECT_EQ(allocator().stats().live, 0);
}

TEST_F(DeviceAllocatorTest, PinnedBlocksWaitForTheirCopies) {
  PinnedPool& pool = gpu().pinned();
  void* d = allocator().allocate(8192);
  void* a = pool.take(5000);
  check(driver().cuMemcpyHtoDAsync_v2(reinterpret_cast<CUdeviceptr>(d), a, 5000, gpu().stream().handle()), "copying");
  pool.give_back(a, gpu().stream());
  void* b = pool.take(5000);
  EXPECT_NE(a, b);
  gpu().stream().synchronize();
  void* c = pool.take(8192);
  EXPECT_EQ(a, c);
  EXPECT_EQ(pool.reserved(), 2 * 8192);
  pool.give_back(b);
  pool.give_back(c);
  pool.empty_cache();
  EXPECT_EQ(pool.reserved(), 0);
  allocator().deallocate(d, 8192);
}

}  // namespace
}  // namespace weft::cuda
