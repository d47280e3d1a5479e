// All schedules for many sizes: they can run, have the right stages on each rank, and sum in the order of microbatches.
#include "distributed/pipeline/schedules.h"

#include <gtest/gtest.h>

#include "distributed/pipeline/check.h"
#include "distributed/pipeline/simulate.h"
#include "framework/base/testing/error_of.h"

namespace weft::dist::pipeline {
namespace {

using weft::testing::error_of;
using weft::testing::expect_error;

TEST(Schedules, AllSizesRun) {
  for (const std::string& name : schedule_names())
    for (int p = 1; p <= 7; ++p)
      for (int m = name == "dualpipe_v" ? 2 * p : 1; m <= 20; ++m)
        for (int v = 0; v <= (name == "interleaved_1f1b" ? 4 : 0); ++v) {
          if (v == 1) continue;
          SCOPED_TRACE(str_cat(name, " p=", p, " v=", v, " m=", m));
          const Table table = make_schedule(name, {.ranks = p, .stages_per_rank = v, .microbatches = m});
          EXPECT_EQ(table.microbatches, m);
          EXPECT_EQ(error_of([&] { check(table, StageLinks(table.stages())); }), "");
          // Weight gradients of a stage are summed in the order of the microbatches.
          std::vector<int> next(static_cast<size_t>(table.stages()), 0);
          for (const std::vector<Action>& rank : table.ranks)
            for (const Action& a : rank) {
              if (a.kind != ActionKind::kWeight && a.kind != ActionKind::kBackward) continue;
              EXPECT_EQ(a.microbatch, next[static_cast<size_t>(a.stage)]++) << a.to_string();
            }
        }
}

TEST(Schedules, Placement) {
  auto ranks_of = [](const char* name, int p, int v) {
    return make_schedule(name, {.ranks = p, .stages_per_rank = v, .microbatches = 2 * p}).rank_of_stage;
  };
  EXPECT_EQ(ranks_of("1f1b", 3, 0), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(ranks_of("interleaved_1f1b", 3, 0), (std::vector<int>{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(ranks_of("interleaved_1f1b", 2, 3), (std::vector<int>{0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(ranks_of("zb_v", 3, 2), (std::vector<int>{0, 1, 2, 2, 1, 0}));
  EXPECT_EQ(ranks_of("dualpipe_v", 3, 0), (std::vector<int>{0, 1, 2, 2, 1, 0}));
}

std::string line(const std::vector<Action>& rank) {
  std::string text;
  for (const Action& a : rank)
    text += str_cat(text.empty() ? "" : " ", a.kind, a.with_next ? "&" : "", a.stage, ".", a.microbatch);
  return text;
}

TEST(Schedules, SmallOnesAsText) {
  const Table h1 = make_schedule("zb_h1", {.ranks = 2, .microbatches = 3});
  EXPECT_EQ(line(h1.ranks[0]), "F0.0 F0.1 I0.0 W0.0 F0.2 I0.1 W0.1 I0.2 W0.2");
  EXPECT_EQ(line(h1.ranks[1]), "F1.0 I1.0 F1.1 I1.1 W1.0 F1.2 I1.2 W1.1 W1.2");
  const Table dual = make_schedule("dualpipe_v", {.ranks = 2, .microbatches = 4, .pairs = true});
  EXPECT_EQ(line(dual.ranks[0]),
            "F0.0 F0.1 F0.2 F3.0 I3.0 W3.0 F3.1 F&0.3 B3.1 F&3.2 B0.0 B3.2 F&3.3 B0.1 B3.3 I0.2 W0.2 I0.3 W0.3");
  EXPECT_EQ(line(dual.ranks[1]),
            "F1.0 F2.0 F1.1 F2.1 F1.2 B2.0 F&2.2 B1.0 F&1.3 B2.1 F&2.3 B1.1 B2.2 B1.2 I2.3 I1.3 "
            "W2.3 W1.3");
}

// Groups are never smaller than the ranks, so the bubble does not depend on the number of microbatches.
TEST(Schedules, InterleavedTakesAnyNumberOfMicrobatches) {
  for (int p = 2; p <= 6; ++p)
    for (int v = 2; v <= 4; ++v)
      for (int m = p; m <= 3 * p; ++m) {
        const Table table = make_schedule("interleaved_1f1b", {.ranks = p, .stages_per_rank = v, .microbatches = m});
        const Simulation s = simulate(table, StageLinks(p * v), ActionCosts::equal(p * v));
        EXPECT_EQ(s.idle(), 3 * (p - 1)) << p << " " << v << " " << m;
      }
}

TEST(Schedules, Errors) {
  expect_error([] { make_schedule("zb_h2", {}); },
               "pipeline: no schedule has the name 'zb_h2'; need one of gpipe, 1f1b, interleaved_1f1b, zb_h1, zb_2p, "
               "zb_v, dualpipe_v; did you mean zb_h1?");
  EXPECT_EQ(error_of([] { make_schedule("1f1b", {.ranks = 4, .microbatches = 0}); }),
            "1f1b: got 4 ranks and 0 microbatches; need 1 or more of each");
  EXPECT_EQ(error_of([] { make_schedule("1f1b", {.ranks = 4, .stages_per_rank = 2, .microbatches = 4}); }),
            "1f1b: got 2 stages per rank; need 1; interleaved_1f1b has more");
  EXPECT_EQ(error_of([] { make_schedule("interleaved_1f1b", {.ranks = 4, .stages_per_rank = 1, .microbatches = 4}); }),
            "interleaved_1f1b: got 1 stages per rank; need 2 to 1048576; 1f1b has one stage per rank");
  EXPECT_EQ(error_of([] { make_schedule("zb_v", {.ranks = 4, .stages_per_rank = 3, .microbatches = 4}); }),
            "zb_v: got 3 stages per rank; need 2");
  EXPECT_EQ(error_of([] { make_schedule("dualpipe_v", {.ranks = 4, .microbatches = 7}); }),
            "dualpipe_v: got 7 microbatches for 4 ranks; need 2 for each rank, 8 or more; zb_v accepts fewer");
  expect_error([] { make_schedule("gpipe", {.ranks = 1 << 30, .microbatches = 1 << 30}); },
               "microbatches are too many; need a product of at most 5592405");
  expect_error([] { make_schedule("gpipe", {.ranks = -1}); }, "got -1 ranks");
  expect_error([] { make_schedule("zb_v", {.ranks = 2, .stages_per_rank = -2}); }, "got -2 stages per rank; need 2");
}

}  // namespace
}  // namespace weft::dist::pipeline
