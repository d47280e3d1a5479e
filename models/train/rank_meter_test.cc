#include "models/train/rank_meter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

namespace weft::train {
namespace {

// Rank 1 is slowed: rank 0 waits for it, and it waits for no rank. Only relations are checked: machines may be slow.
TEST(RankMeter, ASlowRankShowsUp) {
  dist::World world(dist::Mesh{{"dp", 2}});
  RankMeter meter(world);
  for (int step = 0; step < 3; ++step) {
    std::atomic<bool> entered{false};
    meter.begin();
    const double begin = now_seconds();
    world.run([&](int r) {
      if (r == 0) entered = true;
      while (!entered) std::this_thread::yield();
      if (r == 1) std::this_thread::sleep_for(std::chrono::milliseconds(30));
      world.rank(r).agree();
    });
    meter.end();
    meter.count(now_seconds() - begin, 100);
    const std::vector<RankMetrics> ranks = meter.last();
    ASSERT_EQ(ranks.size(), 2u);
    EXPECT_GT(ranks[0].waiting, ranks[1].waiting);
    EXPECT_GT(ranks[0].tokens_per_s, ranks[1].tokens_per_s);
    for (const RankMetrics& r : ranks) {
      EXPECT_GE(r.waiting, 0);
      EXPECT_LE(r.waiting, r.exposed);
      EXPECT_LE(r.exposed, 1);
    }
  }
}

// The sums exclude the first step; the rate of all ranks includes waiting, the rates of single ranks exclude it.
TEST(RankMeter, SumsOfARun) {
  dist::World world(dist::Mesh{{"dp", 2}});
  RankMeter meter(world);
  for (double seconds : {50.0, 2.0, 3.0}) {
    meter.begin();
    meter.end();
    meter.count(seconds, 100);
  }
  EXPECT_EQ(meter.steps(), 2);
  EXPECT_EQ(meter.tokens_per_s(), 40);
  for (const RankMetrics& r : meter.all()) {
    EXPECT_EQ(r.tokens_per_s, 20);
    EXPECT_EQ(r.exposed, 0);
    EXPECT_EQ(r.waiting, 0);
  }
}

TEST(RankMeter, TheTableOfManyRanksHasTheSlowest) {
  std::vector<RankMetrics> ranks;
  for (int r = 0; r < 20; ++r) ranks.push_back({100.0 + r, 0.5, r == 13 ? 0.01 : 0.4});
  const std::string text = ranks_text(ranks, 5, 2000);
  EXPECT_EQ(text.rfind("5 steps: 2000 tokens/s in all\n  rank   tokens/s   exposed   waiting\n"
                       "    13        113     50.0%      1.0%\n",
                       0),
            0u)
      << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 10);
}

}  // namespace
}  // namespace weft::train
