// Tables that cannot run, with the error of each, and tables that can.
#include "distributed/pipeline/check.h"

#include <gtest/gtest.h>

#include "distributed/pipeline/schedules.h"
#include "distributed/pipeline/table_text.h"
#include "framework/base/testing/error_of.h"

namespace weft::dist::pipeline {
namespace {

using weft::testing::error_of;

/// The error of a table over a chain of stages; | separates the lines.
std::string error(std::string text) {
  std::replace(text.begin(), text.end(), '|', '\n');
  return error_of([&] {
    const Table table = parse_table(text, "file");
    check(table, StageLinks(table.stages()));
  });
}

constexpr const char* kTwo = "0,F,0,0|0,F,0,1|0,B,0,0|0,B,0,1|1,F,1,0|1,B,1,0|1,F,1,1|1,B,1,1";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Check, Missing) {
  EXPECT_EQ(error(kTwo), "");
  EXPECT_EQ(error(replaced(kTwo, "0,F,0,1|", "")),
            "pipeline table: rank 0 lacks F of stage 0, microbatch 1; need it for each of 2 microbatches");
  EXPECT_EQ(error(replaced(kTwo, "1,B,1,0|", "")),
            "pipeline table: rank 1 lacks B of stage 1, microbatch 0, and I and W; need each gradient once");
  EXPECT_EQ(error(replaced(kTwo, "1,B,1,0", "1,I,1,0")),
            "pipeline table: rank 1 lacks W of stage 1, microbatch 0; need each gradient once");
  EXPECT_EQ(error(replaced(kTwo, "1,B,1,0", "1,W,1,0")),
            "pipeline table: rank 1 lacks I of stage 1, microbatch 0; need each gradient once");
}

TEST(Check, Doubled) {
  EXPECT_EQ(
      error(replaced(kTwo, "1,F,1,1", "1,F,1,1|1,F,1,1")),
      "pipeline table: rank 1 has F of stage 1, microbatch 1 twice, as its actions 2 and 3 from 0 on; need it once");
  EXPECT_EQ(
      error(replaced(kTwo, "1,B,1,0", "1,B,1,0|1,W,1,0")),
      "pipeline table: rank 1 has W of stage 1, microbatch 0 and also B of stage 1, microbatch 0; need B alone, or "
      "I and W without B");
  EXPECT_EQ(
      error(replaced(kTwo, "1,B,1,0", "1,I,1,0|1,B,1,0")),
      "pipeline table: rank 1 has B of stage 1, microbatch 0 and also I of stage 1, microbatch 0; need B alone, or "
      "I and W without B");
}

TEST(Check, WrongRank) {
  EXPECT_EQ(error(replaced(kTwo, "1,B,1,1", "0,B,1,1")),
            "pipeline table: rank 0 has B of stage 1, microbatch 1; need it on rank 1, where stage 1 is");
}

TEST(Check, Order) {
  EXPECT_EQ(error(replaced(kTwo, "1,F,1,1|1,B,1,1", "1,B,1,1|1,F,1,1")),
            "pipeline table: rank 1 has B of stage 1, microbatch 1 before F of stage 1, microbatch 1, which it awaits; "
            "need them in the other order");
  EXPECT_EQ(error("0,F,0,0|0,W,0,0|0,I,0,0"),
            "pipeline table: rank 0 has W of stage 0, microbatch 0 before I of stage 0, microbatch 0, which it awaits; "
            "need them in the other order");
  // The rank has two stages.
  EXPECT_EQ(error("0,F,1,0|0,F,0,0|0,B,1,0|0,B,0,0"),
            "pipeline table: rank 0 has F of stage 1, microbatch 0 before F of stage 0, microbatch 0, which it awaits; "
            "need them in the other order");
}

TEST(Check, Deadlock) {
  // Rank 0 wants the first microbatch back before it sends the second, which rank 1 wants first.
  EXPECT_EQ(
      error("0,F,0,0|0,B,0,0|0,F,0,1|0,B,0,1|1,F,1,0|1,F,1,1|1,B,1,0|1,B,1,1"),
      "pipeline table: deadlock of 2 ranks: rank 0 waits at B of stage 0, microbatch 0 for B of stage 1, microbatch "
      "0 on rank 1, which waits at F of stage 1, microbatch 1; need an order in which B of stage 1, microbatch 0 "
      "can come first");
  // The error does not name ranks that only wait for ranks of the cycle.
  EXPECT_EQ(
      error("0,F,0,0|0,F,0,1|0,B,0,0|0,B,0,1|"
            "1,F,1,0|1,B,1,0|1,F,1,1|1,B,1,1|2,F,2,0|2,F,2,1|2,B,2,0|2,B,2,1"),
      "pipeline table: deadlock of 2 ranks: rank 1 waits at B of stage 1, microbatch 0 for B of stage 2, microbatch "
      "0 on rank 2, which waits at F of stage 2, microbatch 1; need an order in which B of stage 2, microbatch 0 "
      "can come first");
}

TEST(Check, Joined) {
  EXPECT_EQ(error(replaced(kTwo, "0,F,0,1|", "0,F&,0,1|")), "");
  EXPECT_EQ(error(replaced(kTwo, "1,F,1,1|", "1,F&,1,1|")),
            "pipeline table: rank 1 joins B of stage 1, microbatch 1 with F of stage 1, microbatch 1, which it awaits; "
            "need two actions of which neither awaits the other");
  EXPECT_EQ(
      error(replaced(kTwo, "0,B,0,1|", "0,B&,0,1|")),
      "pipeline table: rank 0 joins B of stage 0, microbatch 1 with nothing; need one other F, I, W or B, which is "
      "not joined with its next action");
  EXPECT_EQ(
      error(replaced(kTwo, "0,F,0,0|0,F,0,1", "0,F&,0,0|0,F&,0,1")),
      "pipeline table: rank 0 joins F of stage 0, microbatch 0 with F of stage 0, microbatch 1; need one other F, "
      "I, W or B, which is not joined with its next action");
  // The F of the pair could run, but its B waits forever.
  EXPECT_EQ(
      error("0,F,0,0|0,F&,0,1|0,B,0,0|0,B,0,1|1,F,1,0|1,F,1,1|1,B,1,0|1,B,1,1"),
      "pipeline table: deadlock of 2 ranks: rank 0 waits at B of stage 0, microbatch 0 for B of stage 1, microbatch "
      "0 on rank 1, which waits at F of stage 1, microbatch 1; need an order in which B of stage 1, microbatch 0 "
      "can come first");
}

TEST(Check, WeightsAreGathered) {
  EXPECT_EQ(error("0,GATHER,0|0,F,0,0|0,RELEASE,0|0,GATHER,0|0,I,0,0|0,RELEASE,0|0,W,0,0|0,REDUCE,0"), "");
  EXPECT_EQ(
      error("0,GATHER,0|0,F,0,0|0,RELEASE,0|0,B,0,0"),
      "pipeline table: rank 0 has B of stage 0, microbatch 0 while the weights are not gathered; need a GATHER of "
      "the stage before");
  EXPECT_EQ(
      error("0,F,0,0|0,GATHER,0|0,B,0,0"),
      "pipeline table: rank 0 has F of stage 0, microbatch 0 while the weights are not gathered; need a GATHER of "
      "the stage before");
  EXPECT_EQ(error("0,GATHER,0|0,GATHER,0|0,F,0,0|0,B,0,0"),
            "pipeline table: rank 0 has GATHER of stage 0, whose weights are gathered already; need a RELEASE between");
  EXPECT_EQ(error("0,RELEASE,0|0,F,0,0|0,B,0,0"),
            "pipeline table: rank 0 has RELEASE of stage 0, whose weights are not gathered; need a GATHER before");
}

TEST(Check, GradientsAreReduced) {
  EXPECT_EQ(error("0,F,0,0|0,F,0,1|0,B,0,0|0,REDUCE,0|0,B,0,1|0,REDUCE,0"), "");
  EXPECT_EQ(
      error("0,F,0,0|0,F,0,1|0,B,0,0|0,REDUCE,0|0,B,0,1"),
      "pipeline table: rank 0 has B of stage 0, microbatch 1 after the last REDUCE of the stage; need a REDUCE after "
      "it");
  EXPECT_EQ(error("0,F,0,0|0,I,0,0|0,REDUCE,0|0,W,0,0"),
            "pipeline table: rank 0 has REDUCE of stage 0 without new gradients; need a W or B of the stage before it");
}

TEST(Check, Transfers) {
  const std::string table =
      "0,F,0,0|0,SEND,0,0,1|0,F,0,1|0,RECV,0,0,1|0,SEND,0,1,1|0,B,0,0|0,RECV,0,1,1|0,B,0,1|"
      "1,RECV,1,0,0|1,F,1,0|1,B,1,0|1,SEND,1,0,0|1,RECV,1,1,0|1,F,1,1|1,B,1,1|1,SEND,1,1,0";
  EXPECT_EQ(error(table), "");
  EXPECT_EQ(error(replaced(table, "1,SEND,1,1,0", "")),
            "pipeline table: rank 1 lacks SEND from stage 1 to 0, microbatch 1; need it for each of 2 microbatches");
  EXPECT_EQ(error(replaced(table, "1,RECV,1,0,0", "1,RECV,1,1,0")),
            "pipeline table: rank 1 has RECV from stage 0 to 1, microbatch 1 twice, as its actions 0 and 4 from 0 on; "
            "need it once");
  EXPECT_EQ(
      error(replaced(table, "0,F,0,0|0,SEND,0,0,1", "0,SEND,0,0,1|0,F,0,0")),
      "pipeline table: rank 0 has SEND from stage 0 to 1, microbatch 0 before F of stage 0, microbatch 0, which it "
      "awaits; need them in the other order");
  EXPECT_EQ(
      error(replaced(table, "1,RECV,1,0,0|1,F,1,0", "1,F,1,0|1,RECV,1,0,0")),
      "pipeline table: rank 1 has F of stage 1, microbatch 0 before RECV from stage 0 to 1, microbatch 0, which it "
      "awaits; need them in the other order");
  EXPECT_EQ(error(replaced(table, "0,RECV,0,0,1|0,SEND,0,1,1", "0,SEND,0,1,1|0,RECV,0,0,1")),
            "pipeline table: rank 1 has SEND from stage 1 to 0, microbatch 0 where rank 0 has SEND from stage 0 to 1, "
            "microbatch 1; need the transfers between two ranks in the same order on both");
  EXPECT_EQ(
      error(replaced(table, "0,SEND,0,0,1", "0,SEND,0,0,0")),
      "pipeline table: rank 0 has SEND from stage 0 to 0, microbatch 0, but these stages exchange nothing; need two "
      "stages with a link");
  EXPECT_EQ(
      error("0,F,0,0|0,SEND,0,0,1|0,F,1,0|0,B,1,0|0,B,0,0"),
      "pipeline table: rank 0 has SEND from stage 0 to 1, microbatch 0, but both stages are on this rank; need no "
      "transfer");
}

TEST(Check, TablesThatNoFileHas) {
  const Table good = make_schedule("1f1b", {.ranks = 2, .microbatches = 2});
  auto error_with = [&](const std::function<void(Table&)>& change, int stages = 2) {
    Table table = good;
    change(table);
    return error_of([&] { check(table, StageLinks(stages)); });
  };
  EXPECT_EQ(error_with([](Table&) {}), "");
  EXPECT_EQ(error_with([](Table&) {}, 3), "pipeline table: got 2 stages; need 3, as the links have");
  EXPECT_EQ(error_with([](Table& t) { t.ranks.clear(); }),
            "pipeline table: got 0 ranks, 2 stages and 2 microbatches; need 1 or more of each");
  EXPECT_EQ(error_with([](Table& t) { t.rank_of_stage[1] = 2; }),
            "pipeline table: stage 1 is on rank 2; need one of 2 ranks");
  EXPECT_EQ(error_with([](Table& t) { t.ranks[1][0].stage = 7; }),
            "pipeline table: rank 1 has F of stage 7, microbatch 0; need a stage from 0 to 1");
  EXPECT_EQ(error_with([](Table& t) { t.ranks[1][0].microbatch = -3; }),
            "pipeline table: rank 1 has F of stage 1, microbatch -3; need a microbatch from 0 to 1");
  // check() allocates no memory for the missing actions.
  EXPECT_EQ(error_with([](Table& t) { t.microbatches = 2000000000; }),
            "pipeline table: rank 0 lacks F of stage 0, microbatch 2; need it for each of 2000000000 microbatches");
}

TEST(Links, StagesOfLinks) {
  const StageLinks links(4, {{2, 3}, {0, 1}, {0, 3}, {1, 2}});
  EXPECT_EQ(links.all(), (std::vector<StageLink>{{0, 1}, {0, 3}, {1, 2}, {2, 3}}));
  auto inputs = [&](int stage) { return std::vector<int>(links.inputs(stage).begin(), links.inputs(stage).end()); };
  EXPECT_EQ(inputs(0), std::vector<int>{});
  EXPECT_EQ(inputs(2), std::vector<int>{2});
  EXPECT_EQ(inputs(3), (std::vector<int>{1, 3}));
  EXPECT_EQ(links.first_output(1), 2);
  EXPECT_EQ(links.find(0, 3), 1);
  EXPECT_EQ(links.find(1, 3), -1);
  EXPECT_EQ(StageLinks(3).all(), (std::vector<StageLink>{{0, 1}, {1, 2}}));
  EXPECT_EQ(error_of([] {
              StageLinks(3, {{1, 1}});
            }),
            "pipeline: got a link from stage 1 to stage 1; need one from a stage to a later one, of stages 0 to 2");
  EXPECT_EQ(error_of([] {
              StageLinks(3, {{0, 3}});
            }),
            "pipeline: got a link from stage 0 to stage 3; need one from a stage to a later one, of stages 0 to 2");
  EXPECT_EQ(error_of([] {
              StageLinks(3, {{0, 1}, {0, 1}});
            }),
            "pipeline: the link from stage 0 to stage 1 comes twice; need each link once");
  EXPECT_EQ(error_of([] { StageLinks(0); }), "pipeline: got 0 stages; need 1 or more");
}

}  // namespace
}  // namespace weft::dist::pipeline
