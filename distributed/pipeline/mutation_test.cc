// Tables with one change: check() refuses each with the right action, or the table is still right. A second
// implementation (reference.h) decides which.
#include <gtest/gtest.h>

#include "distributed/pipeline/check.h"
#include "distributed/pipeline/communication.h"
#include "distributed/pipeline/schedules.h"
#include "distributed/pipeline/testing/mutations.h"
#include "distributed/pipeline/testing/reference.h"
#include "framework/base/testing/error_of.h"

namespace weft::dist::pipeline {
namespace {

using testing::below;
using testing::mutate;
using testing::Mutation;
using testing::Random;

/// Whether a deadlock agrees with the error: after all possible actions have run, a rank waits at the named action for
/// an action that did not run.
bool is_deadlock(const std::string& error, const Table& table, testing::Reference& reference) {
  if (reference.run()) return false;
  for (size_t r = 0; r < table.ranks.size(); ++r) {
    const Action* a = reference.head(r);
    for (int i = 0; a && i < (a->with_next ? 2 : 1); ++i)
      for (const Action& awaited : reference.missing_of(a[i]))
        if (error.find(str_cat("rank ", r, " waits at ", a[i], " for ", awaited, " on rank ")) != error.npos)
          return true;
  }
  return false;
}

TEST(Mutation, RefusedOrRight) {
  int refused = 0, right = 0, deadlocks = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    Random random(seed);
    const testing::Case c{schedule_names()[seed % 7], 1 + below(random, 4), 8 + below(random, 3)};
    Table table = make_schedule(c.name, {.ranks = c.ranks, .microbatches = c.microbatches, .pairs = seed % 2 == 0});
    const StageLinks links(table.stages());
    if (seed % 3 == 0) table = add_communication(table, links, ActionCosts::equal(table.stages()));
    const Mutation m = mutate(std::move(table), random);
    SCOPED_TRACE(str_cat("seed ", seed, ": ", c, " ", m.what));

    testing::Reference reference(m.table, links);
    const std::string error = weft::testing::error_of([&] { check(m.table, links); });
    EXPECT_EQ(error.empty(), reference.valid()) << error;
    if (error.empty()) {
      ++right;
      EXPECT_NO_THROW(simulate(m.table, links, ActionCosts::equal(m.table.stages())));
      continue;
    }
    ++refused;
    if (error.find("deadlock") != error.npos) {
      ++deadlocks;
      EXPECT_TRUE(is_deadlock(error, m.table, reference)) << error;
      continue;
    }
    bool named = false;
    for (const Action& a : m.touched) {
      named |= error.find(a.to_string()) != error.npos;
      if (transfers(a.kind)) named |= error.find(testing::other_end(a).to_string()) != error.npos;
    }
    EXPECT_TRUE(named) << error;
    EXPECT_NE(error.find(m.says), error.npos) << error;
  }
  // The test needs enough tables of each kind.
  EXPECT_GT(refused, 1000);
  EXPECT_GT(right, 50);
  EXPECT_GT(deadlocks, 5);
  RecordProperty("refused", refused);
  RecordProperty("right", right);
  RecordProperty("deadlocks", deadlocks);
}

}  // namespace
}  // namespace weft::dist::pipeline
