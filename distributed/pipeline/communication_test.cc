// Transfers are at places where they cost nothing, and in an order in which no rank waits forever.
#include "distributed/pipeline/communication.h"

#include <gtest/gtest.h>

#include <random>

#include "distributed/pipeline/schedules.h"
#include "distributed/pipeline/testing/reference.h"
#include "framework/base/testing/error_of.h"

namespace weft::dist::pipeline {
namespace {

/// The chain and a few links that skip stages.
StageLinks random_links(int stages, std::mt19937_64& random) {
  std::vector<StageLink> links = StageLinks(stages).all();
  for (int from = 0; from < stages; ++from)
    for (int to = from + 2; to < stages; ++to)
      if (random() % 4 == 0) links.push_back({from, to});
  return StageLinks(stages, links);
}

TEST(Communication, AsFastAsWithoutActionsAndRunsWithBlockingTransfers) {
  std::mt19937_64 random(7);
  std::uniform_int_distribution<int> number(0, 9);
  for (int round = 0; round < 210; ++round) {
    const testing::Case c{schedule_names()[static_cast<size_t>(round) % 7], 1 + static_cast<int>(random() % 5),
                          10 + static_cast<int>(random() % 4)};
    SCOPED_TRACE(str_cat(round, " ", c));
    Table table = make_schedule(c.name, {.ranks = c.ranks, .microbatches = c.microbatches, .pairs = random() % 2 == 0});
    const StageLinks links = round % 3 ? random_links(table.stages(), random) : StageLinks(table.stages());
    ActionCosts costs = ActionCosts::equal(table.stages());
    for (auto& times : costs.times)
      for (size_t k = 0; k < 4; ++k) times[k] = number(random);
    for (int k = 0; k < links.size(); ++k) costs.wire.push_back(number(random));

    const Table whole = add_communication(table, links, costs);
    const Simulation before = simulate(table, links, costs), after = simulate(whole, links, costs);
    EXPECT_EQ(after.makespan, before.makespan);
    size_t transferred = 0;
    for (size_t r = 0; r < table.ranks.size(); ++r) {
      size_t i = 0;
      for (size_t j = 0; j < whole.ranks[r].size(); ++j) {
        if (transfers(whole.ranks[r][j].kind)) {
          ++transferred;
          continue;
        }
        ASSERT_EQ(whole.ranks[r][j], table.ranks[r][i]);
        EXPECT_EQ(after.spans[r][j].begin, before.spans[r][i].begin) << table.ranks[r][i].to_string();
        ++i;
      }
      EXPECT_EQ(i, table.ranks[r].size());
      EXPECT_EQ(after.ranks[r].alive, before.ranks[r].alive);
    }
    size_t crossing = 0;
    for (const StageLink& link : links.all())
      crossing +=
          table.rank_of_stage[static_cast<size_t>(link.from)] != table.rank_of_stage[static_cast<size_t>(link.to)];
    EXPECT_EQ(transferred, 4 * crossing * static_cast<size_t>(c.microbatches));
    testing::Reference reference(whole, links);
    EXPECT_TRUE(reference.valid());
    EXPECT_TRUE(reference.run(/*blocking=*/true));
  }
}

TEST(Communication, SmallOneAsText) {
  const Table table =
      add_communication(make_schedule("1f1b", {.ranks = 2, .microbatches = 2}), StageLinks(2), ActionCosts::equal(2));
  auto lines = [&](size_t rank) {
    std::string text;
    for (const Action& a : table.ranks[rank])
      text += str_cat(text.empty() ? "" : " ", a.kind, a.stage, ".", a.microbatch);
    return text;
  };
  EXPECT_EQ(lines(0), "F0.0 SEND0.0 F0.1 SEND0.1 RECV0.0 B0.0 RECV0.1 B0.1");
  EXPECT_EQ(lines(1), "RECV1.0 RECV1.1 F1.0 B1.0 SEND1.0 F1.1 B1.1 SEND1.1");
}

TEST(Communication, OnlyOnce) {
  const Table table = make_schedule("1f1b", {.ranks = 2, .microbatches = 2});
  const Table whole = add_communication(table, StageLinks(2), ActionCosts::equal(2));
  weft::testing::expect_error([&] { add_communication(whole, StageLinks(2), ActionCosts::equal(2)); },
                              "pipeline table: got a table with SEND and RECV; need one without");
}

}  // namespace
}  // namespace weft::dist::pipeline
