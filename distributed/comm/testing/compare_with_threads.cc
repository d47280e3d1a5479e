#include "distributed/comm/testing/compare_with_threads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "distributed/comm/testing/support.h"
#include "distributed/comm/threads.h"

namespace weft::testing {

namespace {

// The results on thread ranks.
std::vector<std::vector<char>> by_threads(const std::vector<RankOperands>& all) {
  auto c = dist::make_thread_communicators(static_cast<int>(all.size()));
  std::vector<std::vector<char>> results(all.size());
  std::vector<Started> started(all.size());
  for (size_t p = 0; p < all.size(); ++p)
    if (all[p].takes_part) started[p] = weft::testing::start(*c[p], all[p]);
  for (size_t p = 0; p < all.size(); ++p) {
    if (!all[p].takes_part) continue;
    EXPECT_EQ(text(started[p].work->wait(in_a_minute())), "");
    results[p].assign(started[p].out.get(), started[p].out.get() + started[p].out_bytes);
  }
  return results;
}

}  // namespace

void compare_with_threads(Communicator& c, uint64_t first, int cases) {
  const int n = c.size(), rank = c.rank();
  for (int i = 0; i < cases;) {
    std::mt19937_64 random(first + i);
    const int together = std::min<int>(cases - i, 1 + static_cast<int>(random() % 25));
    std::vector<std::pair<uint64_t, Started>> started;
    for (int j = 0; j < together; ++j, ++i) {
      const uint64_t seed = first + i;
      const RankOperands mine = random_collective(seed, n)[rank];
      if (mine.takes_part) started.emplace_back(seed, weft::testing::start(c, mine));
    }
    std::shuffle(started.begin(), started.end(), std::mt19937_64(first + rank));
    for (auto& [seed, s] : started) {
      ASSERT_EQ(text(s.work->wait(in_a_minute())), "") << "seed " << seed;
      EXPECT_TRUE(s.work->done());
      const std::vector<char> want = by_threads(random_collective(seed, n))[rank];
      ASSERT_EQ(std::memcmp(want.data(), s.out.get(), want.size()), 0)
          << "seed " << seed << ", " << to_string_view(random_collective(seed, n)[rank].request.kind) << ", rank "
          << rank << " of " << n;
    }
  }
}

}  // namespace weft::testing
