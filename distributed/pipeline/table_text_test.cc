// Tables are read back as written; errors in a file name their lines.
#include "distributed/pipeline/table_text.h"

#include <gtest/gtest.h>

#include "distributed/pipeline/communication.h"
#include "distributed/pipeline/schedules.h"
#include "framework/base/testing/error_of.h"

namespace weft::dist::pipeline {
namespace {

TEST(TableText, ReadsWhatItWrites) {
  for (const std::string& name : schedule_names())
    for (int p : {1, 2, 5}) {
      const Table table = make_schedule(name, {.ranks = p, .microbatches = 11, .pairs = true});
      EXPECT_EQ(parse_table(table_text(table), "file"), table) << name;
      const StageLinks links(table.stages());
      const Table whole = add_communication(table, links, ActionCosts::equal(table.stages()));
      EXPECT_EQ(parse_table(table_text(whole), "file"), whole) << name;
    }
}

TEST(TableText, AllActions) {
  const std::string text =
      "# "
      "rank,action,stage,microbatch\n0,GATHER,0\n0,F,0,0\n0,SEND,0,0,1\n0,RECV,0,0,1\n0,RELEASE,0\n0,I&,0,0\n0,W,0,0\n"
      "0,REDUCE,0\n1,B,1,0\n";
  const Table table = parse_table(text, "file");
  EXPECT_EQ(table_text(table), text);
  EXPECT_EQ(table.ranks[0][2], (Action{.kind = ActionKind::kSend, .stage = 0, .microbatch = 0, .peer = 1}));
  EXPECT_TRUE(table.ranks[0][5].with_next);
}

// The order of the lines of different ranks does not matter.
TEST(TableText, FreeForm) {
  const Table table = parse_table(
      "rank,action,stage,microbatch\r\n\n 1 , F ,1,0\r\n0,F,0,0  # the first\n\t\n1,B,1,0,\n#0,F,0,1\n0,B,0,0", "file");
  EXPECT_EQ(table_text(table), "# rank,action,stage,microbatch\n0,F,0,0\n0,B,0,0\n1,F,1,0\n1,B,1,0\n");
  EXPECT_EQ(table.rank_of_stage, (std::vector<int>{0, 1}));
  EXPECT_EQ(table.microbatches, 1);
}

TEST(TableText, Errors) {
  auto error = [](const std::string& text) { return weft::testing::error_of([&] { parse_table(text, "my.csv"); }); };
  EXPECT_EQ(error("# nothing\n"), "my.csv: got no actions; need lines rank,action,stage,microbatch");
  EXPECT_EQ(error("0,F,0,0\n0,F\n"), "my.csv: line 2: got 2 fields of F; need rank,action,stage,microbatch");
  EXPECT_EQ(error("0,F,0,0,1\n"), "my.csv: line 1: got 5 fields of F; need rank,action,stage,microbatch");
  EXPECT_EQ(error("0,GATHER,0,0\n"), "my.csv: line 1: got 4 fields of GATHER; need rank,action,stage");
  EXPECT_EQ(error("0,SEND,0,0\n"),
            "my.csv: line 1: got 4 fields of SEND; need rank,action,stage,microbatch,other stage");
  EXPECT_EQ(error("hello\n"), "my.csv: line 1: got \"hello\"; need rank,action,stage,microbatch");
  EXPECT_EQ(error("0,F,0,0\n0,D,0,0\n"),
            "my.csv: line 2: got action \"D\"; need one of F, I, W, B, SEND, RECV, GATHER, RELEASE, REDUCE");
  EXPECT_EQ(
      error("0,F,0,0\n0,B,x,0"),
      "my.csv: line 2: got stage \"x\"; need a number from 0 to 1 (they go without gaps, and the file has 2 lines)");
  EXPECT_EQ(
      error("0,F,0,4000000000\n"),
      "my.csv: line 1: got microbatch \"4000000000\"; need a number from 0 to 1 (they go without gaps, and the file "
      "has 2 lines)");
  EXPECT_EQ(error("0,F,0,0\n0,B,0,0\n2,F,1,0\n2,B,1,0\n"),
            "my.csv: rank 1 has no line; need the ranks 0 to 2 without gaps");
  EXPECT_EQ(error("0,F,0,0\n0,B,0,0\n1,F,2,0\n1,B,2,0\n"),
            "my.csv: stage 1 has no line; need the stages 0 to 2 without gaps");
}

}  // namespace
}  // namespace weft::dist::pipeline
