// Damaged files of tables: each is refused, or check() agrees with its second implementation.
#include <gtest/gtest.h>

#include "distributed/pipeline/check.h"
#include "distributed/pipeline/communication.h"
#include "distributed/pipeline/schedules.h"
#include "distributed/pipeline/table_text.h"
#include "distributed/pipeline/testing/reference.h"
#include "framework/base/error.h"
#include "framework/testing/fuzz.h"

namespace weft::dist::pipeline {
namespace {

/// Whether the reference supports the whole table.
bool simple(const Table& table) {
  size_t actions = 0;
  for (const std::vector<Action>& rank : table.ranks) {
    actions += rank.size();
    for (const Action& a : rank)
      if (a.peer >= table.stages() || !(computes(a.kind) || transfers(a.kind))) return false;
  }
  return actions < 100;
}

TEST(TableTextFuzz, DamagedFiles) {
  const std::vector<std::string_view> words = {"0,F,0,0\n", "F",       "I",      "W", "B", "SEND", "RECV", "GATHER",
                                               "RELEASE",   "REDUCE",  "F&",     "&", ",", ",,",   "#",    "\r\n",
                                               "rank",      "0,B,0,0", "1,F,1,", "0", "1", "2",    " ",    "1,W,1,1\n"};
  auto read = [](const std::string& text) {
    const Table table = parse_table(text, "my.csv");
    const Links links(table.stages());
    bool valid = true;
    try {
      EXPECT_GT(check(table, links).alive.size(), 0u);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::kInvalidArgument) << e.what();
      valid = false;
    }
    EXPECT_TRUE(!valid || parse_table(table_text(table), "my.csv") == table);
    if (simple(table)) {
      EXPECT_EQ(testing::Reference(table, links).valid(), valid) << text;
    }
  };
  std::vector<std::string> seeds = {
      "0,GATHER,0\n0,F,0,0\n0,RELEASE,0\n0,GATHER,0\n0,I,0,0\n0,RELEASE,0\n0,W,0,0\n"
      "0,REDUCE,0\n"};
  for (const char* name : {"1f1b", "zb_v", "dualpipe_v"}) {
    const Table table = make_schedule(name, {.ranks = 2, .microbatches = 4, .pairs = true});
    seeds.push_back(table_text(table));
    seeds.push_back(table_text(add_communication(table, Links(table.stages()), Costs::equal(table.stages()))));
  }
  weft::testing::fuzz(
      {.seeds = seeds,
       .damage = [&](std::string& s, weft::testing::FuzzRandom& r) { weft::testing::damage_text(s, r, words); },
       .read = read,
       .names = "my.csv"});
}

}  // namespace
}  // namespace weft::dist::pipeline
