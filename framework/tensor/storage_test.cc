// The caching allocator: accounting, reuse, limits, many threads.
#include "framework/tensor/storage.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "framework/base/error.h"

// One test asks for more memory than any machine has. Without this, sanitizers end the process instead of returning
// null.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
extern "C" const char* __tsan_default_options() { return "allocator_may_return_null=1"; }

namespace weft {
namespace {

TEST(Allocator, CountsBytesRoundedTo64) {
  Device d = Device::cpu(11);
  Allocator& a = Allocator::of(d);
  void* p = a.allocate(100);
  void* q = a.allocate(1);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % 64, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(q) % 64, 0u);
  EXPECT_EQ(a.stats().live, 128 + 64);
  a.deallocate(p, 100);
  EXPECT_EQ(a.stats().live, 64);
  EXPECT_EQ(a.stats().peak, 192);
  a.reset_peak();
  EXPECT_EQ(a.stats().peak, 64);
  a.deallocate(q, 1);
  EXPECT_EQ(a.stats().live, 0);
}

TEST(Allocator, ReusesBlocksOfAClass) {
  Allocator& a = Allocator::of(Device::cpu(12));
  void* p = a.allocate(5000);
  a.deallocate(p, 5000);
  int64_t before = a.stats().system_allocations;
  EXPECT_EQ(a.allocate(5001), p);
  EXPECT_EQ(a.stats().system_allocations, before);
  a.deallocate(p, 5001);
  EXPECT_GE(a.stats().cached, 5001);
  a.empty_cache();
  EXPECT_EQ(a.stats().cached, 0);
}

TEST(Allocator, EverySizeHoldsItsBytes) {
  Allocator& a = Allocator::of(Device::cpu(13));
  for (int64_t bytes = 1; bytes < (int64_t{1} << 23); bytes += bytes / 7 + 1) {
    void* p = a.allocate(bytes);
    std::memset(p, 1, bytes);  // asan watches the end
    a.deallocate(p, bytes);
  }
  a.empty_cache();
}

TEST(Allocator, RefusesBlocksBeyondItsClasses) {
  Allocator& a = Allocator::of(Device::cpu(19));
  for (int64_t bytes : {(int64_t{1} << 50) + 1, int64_t{1} << 51, int64_t{1} << 60, INT64_MAX}) {
    try {
      a.allocate(bytes);
      FAIL() << bytes;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::kResourceExhausted);
      EXPECT_NE(std::string(e.what()).find("a block has at most 2^50 bytes"), std::string::npos) << e.what();
    }
  }
  EXPECT_EQ(a.stats().live, 0);
}

TEST(Allocator, LimitIsAnErrorAndLeavesTheCounts) {
  Allocator& a = Allocator::of(Device::cpu(14));
  a.set_limit(1 << 20);
  void* p = a.allocate(1 << 19);
  try {
    a.allocate((1 << 19) + 1);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kResourceExhausted);
    EXPECT_NE(std::string(e.what()).find("out of memory on cpu:14: asked for 524289 bytes; live 524288"),
              std::string::npos)
        << e.what();
  }
  EXPECT_EQ(a.stats().live, 1 << 19);
  a.set_limit(0);
  a.deallocate(p, 1 << 19);
  try {
    a.allocate(int64_t{1} << 50);  // more than the machine has
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()).find("limit"), std::string::npos) << e.what();
  }
  EXPECT_EQ(a.stats().live, 0);
}

TEST(Allocator, ManyThreads) {
  Allocator& a = Allocator::of(Device::cpu(15));
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&a, t] {
      std::mt19937 random(t);
      std::vector<std::pair<unsigned char*, int64_t>> held;
      for (int i = 0; i < 3000; ++i) {
        if (held.size() > 20 || (!held.empty() && random() % 2)) {
          auto [p, n] = held.back();
          held.pop_back();
          for (int64_t k = 0; k < n; k += 97) ASSERT_EQ(p[k], static_cast<unsigned char>(t));  // no block given twice
          a.deallocate(p, n);
        } else {
          int64_t n = 1 + random() % 5000;
          auto* p = static_cast<unsigned char*>(a.allocate(n));
          std::memset(p, t, n);
          held.emplace_back(p, n);
        }
      }
      for (auto [p, n] : held) a.deallocate(p, n);
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(a.stats().live, 0);
}

TEST(Storage, WrapsForeignMemory) {
  int deleted = 0;
  char bytes[64];
  {
    Ref<Storage> s = Storage::wrap(bytes, 64, Device::cpu(), [&](void* p) { deleted += p == bytes; });
    Ref<Storage> alias = s;
    EXPECT_EQ(s.get(), alias.get());
  }
  EXPECT_EQ(deleted, 1);
  EXPECT_THROW(Storage::allocate(8, Device::cuda(0)), Error);
}

}  // namespace
}  // namespace weft
