// Tables with one change: each is refused with the right action named, or is still right. A second implementation
// (reference.h) says which.
#include <gtest/gtest.h>

#include <random>

#include "distributed/pipeline/check.h"
#include "distributed/pipeline/communication.h"
#include "distributed/pipeline/reference.h"
#include "distributed/pipeline/schedules.h"
#include "framework/base/testing/error_of.h"

namespace weft::dist::pipeline {
namespace {

using Random = std::mt19937_64;

int below(Random& random, size_t end) { return static_cast<int>(random() % end); }

struct Mutation {
  Table table;
  std::string what;
  std::vector<Action> touched;  // an error has to name one of these or the other end of a transfer, or is a deadlock
  std::string says;             // and this, if it is an error
};

/// Removes, doubles, moves to another rank, or swaps.
Mutation mutate(Table table, Random& random) {
  const size_t rank = random() % table.ranks.size();
  std::vector<Action>& list = table.ranks[rank];
  const auto at = [&](int i) { return list.begin() + i; };
  const int i = below(random, list.size());
  const Action a = *at(i);
  // Where pairs are torn apart, the error names the first of a pair.
  std::vector<Action> touched = {a};
  auto touch = [&](int k) {
    if (k >= 0 && k < static_cast<int>(list.size()) && at(k)->with_next) touched.push_back(*at(k));
  };
  auto done = [&](const char* what, const char* says) {
    return Mutation{std::move(table), str_cat(what, " ", a, " on rank ", rank), touched, a.with_next ? "" : says};
  };
  touch(i - 1);
  switch (random() % 4) {
    case 0: {
      list.erase(at(i));
      return done("without", touched.size() > 1 ? "" : " lacks ");
    }
    case 1: {
      const int to = below(random, list.size() + 1);
      touch(to - 1);
      list.insert(at(to), a);
      return done("twice", touched.size() > 1 ? "" : " twice");
    }
    case 2: {
      const size_t other = random() % table.ranks.size();
      if (other == rank) break;
      list.erase(at(i));
      std::vector<Action>& others = table.ranks[other];
      const int to = below(random, others.size() + 1);
      const bool in_pair = to > 0 && others[static_cast<size_t>(to - 1)].with_next;
      others.insert(others.begin() + to, a);
      return done("moved", in_pair || touched.size() > 1 ? "" : "; need it on rank ");
    }
    default:
      break;
  }
  const int j = random() % 2 ? below(random, list.size()) : std::min(i + 1, static_cast<int>(list.size()) - 1);
  const Action b = *at(j);
  touched.push_back(b);
  touch(j - 1);
  std::swap(*at(i), *at(j));
  return done(str_cat(b, " swapped with").c_str(), "");
}

/// Whether a deadlock is as the error says: a rank waits, after all that can run has run, at the named action for one
/// that did not run.
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
    const Links links(table.stages());
    if (seed % 3 == 0) table = add_communication(table, links, Costs::equal(table.stages()));
    const Mutation m = mutate(std::move(table), random);
    SCOPED_TRACE(str_cat("seed ", seed, ": ", c, " ", m.what));

    testing::Reference reference(m.table, links);
    const std::string error = weft::testing::error_of([&] { check(m.table, links); });
    EXPECT_EQ(error.empty(), reference.valid()) << error;
    if (error.empty()) {
      ++right;
      EXPECT_NO_THROW(simulate(m.table, links, Costs::equal(m.table.stages())));
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
  // Enough of each that the test says something.
  EXPECT_GT(refused, 1000);
  EXPECT_GT(right, 50);
  EXPECT_GT(deadlocks, 5);
  RecordProperty("refused", refused);
  RecordProperty("right", right);
  RecordProperty("deadlocks", deadlocks);
}

}  // namespace
}  // namespace weft::dist::pipeline
