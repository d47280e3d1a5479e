// If a process ends or stops, the errors of the other ranks name its rank, nothing hangs, and no memory or file
// remains.
#include <gtest/gtest.h>

#include <fstream>

#include "distributed/comm/shared/testing/tested_world.h"

namespace weft::testing {

INSTANTIATE_TEST_SUITE_P(Shared, WorldDeath, ::testing::Values(shared_world()));

}  // namespace weft::testing

namespace weft::dist {
namespace {

using namespace weft::testing;
using std::chrono::milliseconds;

TEST(SharedDeath, NothingIsLeftAfterAllAreKilled) {
  auto shared_pages = [] {
    std::ifstream info("/proc/meminfo");
    std::string name;
    int64_t kb = 0;
    while (info >> name) {
      if (name == "Shmem:") {
        info >> kb;
        break;
      }
    }
    return kb;
  };
  const int64_t before = shared_pages();
  Common<Times> times;
  const std::string folder = new_folder();
  Processes two(2, [&](int rank) {
    const auto body = [&](Communicator& c, ProcessWorld&) {
      std::vector<float> v(40 << 20, 1.0f);  // three pieces
      c.start({.kind = Collective::kAllReduce, .in = view(v), .out = view(v)})->wait(in_a_minute());
      ++times->ready;
      while (!c.start({})->wait(in_a_minute())) continue;
    };
    in_world(with_options({.piece_bytes = 40 << 20}), each(2), rank, folder, body);
  });
  while (times->ready < 2) std::this_thread::yield();
  EXPECT_GT(shared_pages(), before + (150 << 10));
  for (int i : {0, 1}) two.signal(i, SIGKILL);
  EXPECT_EQ(two.wait(), "signal 9 signal 9");
  for (int i = 0; i < 200 && shared_pages() > before + (50 << 10); ++i) std::this_thread::sleep_for(milliseconds(10));
  EXPECT_LT(shared_pages(), before + (50 << 10));
}

}  // namespace
}  // namespace weft::dist
