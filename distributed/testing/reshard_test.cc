// Resharding between all pairs of specs of a small tensor gives every rank the right values. It never costs more than a
// gather of the whole tensor, and uses the shortest sequence if there is one.
#include "distributed/propagate/reshard.h"

#include <gtest/gtest.h>

#include "distributed/testing/reshard_sim.h"
#include "distributed/testing/sharded_call.h"
#include "distributed/testing/specs.h"
#include "framework/testing/values.h"
#include "ops/core/core.h"

namespace weft::testing {
namespace {

using dist::Axes;
using dist::DimSpec;
using dist::Mesh;
using dist::Move;
using dist::SegLayout;
using dist::Spec;

std::vector<Move> moves(const std::vector<dist::ReshardStage>& stages) {
  std::vector<Move> out;
  for (const dist::ReshardStage& s : stages)
    for (const dist::ReshardStep& step : s.steps) out.push_back(step.move);
  return out;
}

// The values are integers, so sums are exact.
Tensor numbers(const Shape& shape) { return arange(shape.numel()).reshape(shape).to(kFloat64); }

// Tests every `stride`-th pair.
void all_pairs(const Mesh& mesh, const Shape& shape, size_t stride, bool maxima) {
  const Tensor whole = numbers(shape);
  const std::vector<Spec> all = specs(mesh, shape, maxima);
  size_t count = 0, failures = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    std::vector<Tensor> parts;
    for (int r = 0; r < mesh.size(); ++r) parts.push_back(whole_part(mesh, all[i], whole, r));
    const double gather = dist::cost_of(mesh, dist::reshard(mesh, all[i], Spec::replicated(shape)), kFloat64).bytes;
    for (size_t j = 0; j < all.size() && failures < 10; ++j) {
      if (count++ % stride != 0) continue;
      std::string why;
      const auto stages = dist::reshard(mesh, all[i], all[j]);
      try {
        why = difference(mesh, all[j], simulate(mesh, stages, parts), whole, true);
      } catch (const Error& e) {
        why = e.what();
      }
      const double bytes = dist::cost_of(mesh, stages, kFloat64).bytes;
      if (why.empty() && bytes > gather) why = str_cat(bytes, " bytes; gathering all takes ", gather);
      if (why.empty()) continue;
      ++failures;
      std::string steps;
      for (Move m : moves(stages)) steps += str_cat(" ", to_string(m));
      ADD_FAILURE() << to_string(mesh, all[i]) << " to " << to_string(mesh, all[j]) << ":" << steps << ": " << why;
    }
  }
  ::testing::Test::RecordProperty("specs", static_cast<int>(all.size()));
}

TEST(Reshard, AllPairsOverTwoByTwoByTwo) { all_pairs(Mesh({{"a", 2}, {"b", 2}, {"c", 2}}), {8, 4}, 5, false); }
TEST(Reshard, AllPairsOverTwoByTwoByTwoUneven) { all_pairs(Mesh({{"a", 2}, {"b", 2}, {"c", 2}}), {6, 5}, 1, false); }
TEST(Reshard, AllPairsOverTwoByThree) { all_pairs(Mesh({{"a", 2}, {"b", 3}}), {12, 6}, 1, true); }
TEST(Reshard, AllPairsOverTwoByThreeUneven) { all_pairs(Mesh({{"a", 2}, {"b", 3}}), {7, 5}, 1, true); }

// ---- the shortest sequences ----

const Mesh kMesh({{"a", 2}, {"b", 2}});

Spec spec(const char* first, const char* second, const char* pending = "") {
  Spec s;
  s.dims.push_back(dist::one_segment(8, kMesh.axes(first)));
  s.dims.push_back(dist::one_segment(4, kMesh.axes(second)));
  for (int8_t a : kMesh.axes(pending)) s.add_pending(a, ReduceOp::kSum);
  return s;
}
std::vector<Move> way(const Spec& from, const Spec& to) { return moves(dist::reshard(kMesh, from, to)); }
using Moves = std::vector<Move>;

TEST(Reshard, TermsThatAreWantedInPartsAreScattered) {
  EXPECT_EQ(way(spec("", "", "a"), spec("a", "")), Moves{Move::kReduceScatter});
  EXPECT_EQ(way(spec("", "", "a,b"), spec("a,b", "")), Moves{Move::kReduceScatter});
  EXPECT_EQ(way(spec("", "", "a,b"), spec("a", "b")), (Moves{Move::kReduceScatter, Move::kReduceScatter}));
  EXPECT_EQ(way(spec("", "", "a,b"), spec("a", "")), (Moves{Move::kReduceScatter, Move::kAllReduce}));
  EXPECT_EQ(way(spec("", "", "a,b"), spec("", "")), Moves{Move::kAllReduce});
  EXPECT_EQ(way(spec("", "", "a"), spec("", "b", "a")), Moves{Move::kSlice});
}

TEST(Reshard, ASplitMovesBetweenDimsByOneAllToAll) {
  EXPECT_EQ(way(spec("a", ""), spec("", "a")), Moves{Move::kAllToAll});
  EXPECT_EQ(way(spec("a,b", ""), spec("a", "b")), Moves{Move::kAllToAll});
  EXPECT_EQ(way(spec("a,b", ""), spec("", "a,b")), Moves{Move::kAllToAll});
  EXPECT_EQ(way(spec("a", ""), spec("a", "b")), Moves{Move::kSlice});
  EXPECT_EQ(way(spec("a", "b"), spec("a", "")), Moves{Move::kAllGather});
  EXPECT_TRUE(way(spec("a", "b"), spec("a", "b")).empty());
}

TEST(Reshard, WhatIsSplitFinerGoesInTheCheaperOrder) {
  // A slice comes before gathers and exchanges, so that fewer bytes move.
  const auto steps = way(spec("a", ""), spec("", "a,b"));
  ASSERT_FALSE(steps.empty());
  EXPECT_LE(dist::cost_of(kMesh, dist::reshard(kMesh, spec("a", ""), spec("", "b,a")), kFloat64).bytes, 8.0 * 32 / 2);
}

}  // namespace
}  // namespace weft::testing
