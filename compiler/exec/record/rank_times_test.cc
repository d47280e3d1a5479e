#include "compiler/exec/record/rank_times.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TraceEvent slice(int32_t rank, TraceEvent::TraceKind kind, int64_t begin, int64_t end) {
  return {.begin_ns = begin, .end_ns = end, .rank = rank, .kind = kind};
}
TraceEvent launch(int32_t rank, int64_t begin, int64_t end) { return slice(rank, TraceEvent::kLaunch, begin, end); }
TraceEvent collective(int32_t rank, uint64_t flow, int64_t begin, int64_t end, bool starts = true, bool waits = true) {
  TraceEvent e = slice(rank, TraceEvent::kCollective, begin, end);
  e.flow = flow;
  e.starts = starts;
  e.waits = waits;
  return e;
}

std::vector<int64_t> numbers(const RankTime& t) { return {t.compute, t.communication, t.waiting, t.idle, t.awaited}; }
using Numbers = std::vector<int64_t>;

TEST(RankTimes, WaitingEndsWhenTheLastRankStarts) {
  // Rank 1 computes until 70; rank 0 waits for it from 20 on. The launch of a collective has the collective inside.
  const std::vector<TraceEvent> events = {
      launch(0, 0, 20),  launch(0, 20, 80),        collective(0, 5, 20, 80), launch(1, 10, 70),
      launch(1, 70, 82), collective(1, 5, 70, 80), launch(0, 90, 100),
  };
  const RankTimes t = rank_times(events);
  EXPECT_EQ(t.total, 100);
  EXPECT_EQ(t.critical, 1);
  ASSERT_EQ(t.ranks.size(), 2u);
  EXPECT_EQ(numbers(t.ranks[0]), (Numbers{30, 10, 50, 10, 0}));
  EXPECT_EQ(numbers(t.ranks[1]), (Numbers{62, 10, 0, 28, 50}));
  for (const RankTime& r : t.ranks) EXPECT_EQ(r.compute + r.communication + r.waiting + r.idle, t.total);
  const std::string text = t.to_string(2);
  EXPECT_NE(text.find("critical: rank 1; the others together waited 0.000 ms a step for it\n"), std::string::npos)
      << text;
}

TEST(RankTimes, HiddenCommunicationIsCompute) {
  // Started at 0 and at 30, computed meanwhile, waited for from 50 on: only the waits are exposed.
  const std::vector<TraceEvent> events = {
      collective(0, 9, 0, 1, true, false),   launch(0, 1, 50),  collective(0, 9, 50, 60, false, true),
      collective(1, 9, 30, 31, true, false), launch(1, 31, 55), collective(1, 9, 55, 60, false, true),
  };
  const RankTimes t = rank_times(events);
  EXPECT_EQ(numbers(t.ranks[0]), (Numbers{49, 11, 0, 0, 0}));
  EXPECT_EQ(numbers(t.ranks[1]), (Numbers{24, 6, 0, 30, 0}));
  EXPECT_EQ(t.critical, 0);  // none was awaited: the rank with most compute
}

TEST(RankTimes, OneDeviceIsOneRow) {
  const std::vector<TraceEvent> events = {slice(-1, TraceEvent::kStep, 0, 100), slice(-1, TraceEvent::kOp, 10, 60),
                                          slice(-1, TraceEvent::kOp, 20, 30)};  // inside the other
  const RankTimes t = rank_times(events);
  ASSERT_EQ(t.ranks.size(), 1u);
  EXPECT_EQ(numbers(t.ranks[0]), (Numbers{50, 0, 0, 50, 0}));
  EXPECT_EQ(t.critical, -1);
  EXPECT_EQ(t.to_string().find("critical"), std::string::npos);
  EXPECT_TRUE(rank_times({}).ranks.empty());
}

// The events of workers and of the program's own thread are not ranks' time.
TEST(RankTimes, OnlyTheRanks) {
  const std::vector<TraceEvent> events = {slice(-1, TraceEvent::kOp, 0, 50), launch(3, 50, 60),
                                          slice(3, TraceEvent::kTasks, 52, 70)};
  const RankTimes t = rank_times(events);
  ASSERT_EQ(t.ranks.size(), 1u);
  EXPECT_EQ(t.ranks[0].rank, 3);
  EXPECT_EQ(numbers(t.ranks[0]), (Numbers{10, 0, 0, 60, 0}));
}

}  // namespace
}  // namespace weft
