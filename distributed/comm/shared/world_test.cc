#include "distributed/comm/shared/world.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "distributed/comm/shared/heap.h"
#include "distributed/comm/shared/testing/tested_world.h"
#include "distributed/comm/testing/compare_with_threads.h"

namespace weft::testing {

INSTANTIATE_TEST_SUITE_P(Shared, WorldCommunicators, ::testing::Values(shared_world()));

}  // namespace weft::testing

namespace weft::dist {
namespace {

using namespace weft::testing;
using Clock = std::chrono::steady_clock;

TEST(SharedWorld, BitsOfThreadRanksInManySmallPieces) {
  for (const auto& layout : {each(2), each(4)})
    EXPECT_EQ(run_world(with_options({.piece_bytes = 8 << 10}), layout,
                        [&](Communicator& c, ProcessWorld&) { compare_with_threads(c, 9000, 100); }),
              layout.size() == 2 ? "0 0" : "0 0 0 0");
}

TEST(SharedWorld, BitsOfThreadRanksWithoutProgressThread) {
  EXPECT_EQ(run_world(with_options({.progress_thread = false}), each(2),
                      [&](Communicator& c, ProcessWorld&) { compare_with_threads(c, 7000, 150); }),
            "0 0");
}

// A collective that has started ends although its ranks compute.
TEST(SharedWorld, ProgressWhileRanksCompute) {
  EXPECT_EQ(run_world(with_options(), each(2),
                      [](Communicator& c, ProcessWorld&) {
                        std::vector<float> v(1 << 20, 1.0f);
                        auto w = c.start({.kind = Collective::kAllReduce, .in = view(v), .out = view(v)});
                        // The test does not call wait() or done().
                        const auto end = Clock::now() + std::chrono::seconds(10);
                        volatile const float* last = &v.back();
                        while (*last != 2.0f && Clock::now() < end) std::this_thread::yield();
                        EXPECT_EQ(*last, 2.0f);
                        EXPECT_EQ(text(w->wait(in_a_minute())), "");
                        for (float x : v) ASSERT_EQ(x, 2.0f);
                      }),
            "0 0");
}

TEST(SharedWorld, NothingIsLeft) {
  auto names = [] {
    std::string text;
    for (const auto& f : std::filesystem::directory_iterator("/dev/shm")) text += f.path().string() + "\n";
    return text;
  };
  auto descriptors = [] {
    const std::filesystem::directory_iterator list("/proc/self/fd");
    return std::distance(begin(list), end(list));
  };
  const std::string before = names();
  EXPECT_EQ(run_world(with_options(), each(2),
                      [](Communicator& c, ProcessWorld&) {
                        EXPECT_EQ(text(c.start({.kind = Collective::kBarrier})->wait(in_a_minute())), "");
                      }),
            "0 0");
  const std::string folder = new_folder();
  Processes two(2, [&](int rank) {
    const auto open = descriptors();
    for (int i = 0; i < 3; ++i) {
      in_world(with_options(), each(2), rank, folder + "/" + std::to_string(i),
               [&](Communicator& c, ProcessWorld&) { compare_with_threads(c, 8000, 10); });
      EXPECT_EQ(descriptors(), open);
    }
    std::ifstream maps("/proc/self/maps");
    const std::string all((std::istreambuf_iterator<char>(maps)), {});
    EXPECT_EQ(all.find("weft-rank"), all.npos);
  });
  EXPECT_EQ(two.wait(), "0 0");
  EXPECT_EQ(names(), before);
}

// A container's /dev/shm is small; nothing is stored there.
TEST(SharedWorld, SmallDevShm) {
  const std::string folder = new_folder();
  Processes two(2, [&](int rank) {
    if (unshare(CLONE_NEWNS | (geteuid() == 0 ? 0 : CLONE_NEWUSER)) != 0 ||
        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=1m") != 0) {
      std::printf("not tested: no right to mount\n");
      return;
    }
    in_world(with_options(), each(2), rank, folder, [&](Communicator& c, ProcessWorld&) {
      std::vector<float> v(4 << 20, 1.0f);
      EXPECT_EQ(text(c.start({.kind = Collective::kAllReduce, .in = view(v), .out = view(v)})->wait(in_a_minute())),
                "");
      EXPECT_EQ(v.back(), 2.0f);
    });
    EXPECT_EQ(std::distance(begin(std::filesystem::directory_iterator("/dev/shm")), {}), 0);
  });
  EXPECT_EQ(two.wait(), "0 0");
}

TEST(SharedWorld, HeapReusesMemory) {
  shared::Segment segment(0, 16 << 20);
  SharedHeap heap(segment);
  const int64_t before = heap.in_use();
  char* a = static_cast<char*>(heap.allocate(1000));
  char* b = static_cast<char*>(heap.allocate(5 << 20));
  std::memset(b, 1, 5 << 20);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 64, 0);
  EXPECT_TRUE(segment.contains(b) && !segment.contains(&heap));
  heap.free(a);
  heap.free(b);
  EXPECT_EQ(heap.allocate(6 << 20), a);  // both blocks, joined and extended
  EXPECT_EQ(heap.in_use(), before + (6 << 20));
  EXPECT_THROW(heap.allocate(16 << 20), Error);
  EXPECT_THROW(heap.free(b), Error);
}

}  // namespace
}  // namespace weft::dist
