#include "distributed/replica/data_part.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "framework/base/testing/error_of.h"

namespace weft::dist {
namespace {

using control::ReplicaView;
using control::ViewMember;

// Views as a group makes them: some continue, some cancel the steps of earlier views. The replicas of a view count the
// parts that they take, from the count of the state with which the view began.
struct RandomRun {
  std::vector<ReplicaView> views;
  std::map<int64_t, std::map<int64_t, int64_t>> parts;  // view -> step -> parts before it
  int64_t steps = 0;                                    // the steps of the last view end here

  explicit RandomRun(std::mt19937_64& random) {
    const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
    const int64_t count = 1 + below(12);
    std::vector<int64_t> ends{0};  // index: view; the step after its last one
    int64_t incarnation = 1;
    for (int64_t number = 1; number <= count; ++number) {
      ReplicaView v{.number = number};
      const bool cancels = number > 1 && below(4) == 0;
      v.after = cancels ? below(number) : number - 1;
      const int64_t from = v.after == 0 ? 0 : views[v.after - 1].start;
      v.start = v.after == 0 ? 0 : cancels ? from + below(ends[v.after] - from + 1) : ends[v.after];
      if (cancels) ++incarnation;  // all processes had ended
      const int64_t members = 1 + below(5);
      for (int64_t m = 0; m < members; ++m) v.members.push_back({str_cat("r", m), incarnation, m > 0 && below(2) == 0});
      EXPECT_EQ(control::problem_of(views.empty() ? ReplicaView() : views.back(), v), "");
      int64_t taken = v.after == 0 ? 0 : parts[v.after].at(v.start);
      const int64_t made = below(6);  // committed steps
      for (int64_t s = v.start; s <= v.start + made; ++s, taken += members) parts[number][s] = taken;
      ends.push_back(v.start + made);
      views.push_back(v);
    }
    steps = ends.back();
  }
};

TEST(DataPart, EachPositionIsInOneCommittedStep) {
  std::mt19937_64 random(7);
  int64_t cancelled = 0;
  for (int run = 0; run < 5000; ++run) {
    const RandomRun r(random);
    const std::vector<ReplicaView> history = control::history_of(r.views, r.views.back().number);
    cancelled += history.size() < r.views.size();
    ASSERT_EQ(history[0].start, 0);
    constexpr int64_t kRows = 3;
    std::vector<int> taken;  // index: sample
    for (int64_t step = 0; step < r.steps; ++step) {
      const int64_t live = part_at(history, step, 0).live;
      for (int64_t place = 0; place < live; ++place) {
        const DataPart p = part_at(history, step, place);
        // A replica that lived through the view has counted the same parts.
        ASSERT_EQ(p.first, r.parts.at(p.view).at(step));
        const int64_t begin = (p.first + p.place) * kRows;
        taken.resize(std::max(taken.size(), static_cast<size_t>(begin + kRows)));
        for (int64_t row = 0; row < kRows; ++row) ++taken[begin + row];
      }
    }
    for (size_t i = 0; i < taken.size(); ++i) ASSERT_EQ(taken[i], 1) << "sample " << i << " of run " << run;
  }
  EXPECT_GT(cancelled, 500);
}

TEST(DataPart, NamesStepsBeforeTheViews) {
  const std::vector<ReplicaView> history{{.number = 3, .start = 40, .members = {{"a", 1}}}};
  EXPECT_EQ(part_at(history, 41, 0).first, 1);
  testing::expect_error([&] { part_at(history, 39, 0); },
                        "the views begin at step 40; need a step from there on, not 39");
}

TEST(DataPart, ABatchHasEqualParts) {
  EXPECT_EQ(rows_of_part(12, 4), 3);
  testing::expect_error(
      [] { rows_of_part(10, 4); },
      "a batch of 10 rows for 4 replicas; need a multiple of 4, because each replica takes an equal part");
}

}  // namespace
}  // namespace weft::dist
