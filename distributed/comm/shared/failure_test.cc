// If a rank fails, the others get the errors of thread ranks, and nothing hangs.
#include <gtest/gtest.h>

#include <atomic>
#include <random>

#include "distributed/comm/shared/testing/tested_world.h"

namespace weft::testing {

INSTANTIATE_TEST_SUITE_P(Shared, WorldFailure, ::testing::Values(shared_world()));

}  // namespace weft::testing

namespace weft::dist {
namespace {

using namespace weft::testing;
using Clock = std::chrono::steady_clock;

// Some deadlines pass while the other ranks complete the collective.
TEST(SharedFailure, ACollectiveSucceedsOnAllRanksOrOnNone) {
  struct Counts {
    std::atomic<int> successes[3];
  };
  Common<Counts> counts;
  int failed_late = 0;
  for (uint64_t seed = 1; seed <= 80; ++seed) {
    const int n = 2 + static_cast<int>(seed % 2);
    for (auto& c : counts->successes) c = 0;
    EXPECT_EQ(run_world(with_options({.piece_bytes = seed % 4 < 2 ? 16 << 10 : 256 << 10}), each(n),
                        [&](Communicator& c, ProcessWorld&) {
                          const int rank = c.rank();
                          std::mt19937_64 random(seed * 10 + rank);
                          std::vector<float> v(50000);
                          EXPECT_EQ(text(c.start({})->wait(in_a_minute())), "");
                          for (int i = 0; i < 100000; ++i) {
                            const StridedView x{v.data(), kFloat32, {i % 4 == 1 ? 10 : 50000}, {1}};
                            const CommRequest r = i % 4 == 0
                                                      ? CommRequest{}
                                                      : CommRequest{.kind = Collective::kAllReduce, .in = x, .out = x};
                            const auto patience = std::chrono::microseconds(random() % 50 ? 20000 : random() % 400);
                            if (c.start(r)->wait(Clock::now() + patience)) break;
                            ++counts->successes[rank];
                          }
                        }),
              n == 2 ? "0 0" : "0 0 0");
    for (int r = 1; r < n; ++r) ASSERT_EQ(counts->successes[r], counts->successes[0]) << "seed " << seed;
    failed_late += counts->successes[0] > 3;
  }
  std::printf("%d of 80 runs failed after more than three collectives\n", failed_late);
}

}  // namespace
}  // namespace weft::dist
