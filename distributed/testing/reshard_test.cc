// Resharding between all pairs of specs of a small tensor: right on every rank, never dearer than gathering it all, and
// in the shortest way where there is one.
#include "distributed/propagate/reshard.h"

#include <gtest/gtest.h>

#include "distributed/testing/reshard_sim.h"
#include "distributed/testing/sharded_call.h"
#include "framework/testing/values.h"
#include "ops/core/core.h"

namespace weft::testing {
namespace {

using dist::Axes;
using dist::DimSpec;
using dist::Layout;
using dist::Mesh;
using dist::Move;
using dist::Spec;

// Every ordered choice of axes, none twice.
std::vector<Axes> choices(int axes) {
  std::vector<Axes> out{{}};
  for (size_t i = 0; i < out.size(); ++i)
    for (int8_t a = 0; a < axes; ++a) {
      bool used = false;
      for (int8_t x : out[i]) used |= x == a;
      if (used) continue;
      Axes more = out[i];
      more.push_back(a);
      out.push_back(more);
    }
  return out;
}

bool overlap(const Axes& a, const Axes& b) {
  for (int8_t x : a)
    for (int8_t y : b)
      if (x == y) return true;
  return false;
}

// The ways a dim may lie over these axes: blocks, head to tail, and as a flattened pair of segments.
std::vector<DimSpec> ways(const Mesh& mesh, int64_t extent, const Axes& axes) {
  std::vector<DimSpec> out{dist::one_segment(extent, axes)};
  if (axes.empty()) return out;
  if (extent % (2 * mesh.parts(axes)) == 0) out.push_back(dist::one_segment(extent, axes, Layout::kHeadTail));
  for (int64_t major : {2, 4}) {
    if (extent % major != 0 || extent == major) continue;
    for (size_t first = 0; first < axes.size(); ++first) {  // these to the major segment, the others to the minor one
      Axes a, b;
      for (size_t i = 0; i < axes.size(); ++i) (i < first ? a : b).push_back(axes[i]);
      DimSpec d;
      d.push_back({major, a});
      d.push_back({extent / major, b});
      out.push_back(dist::canonical(mesh, d));
    }
  }
  return out;
}

std::vector<Spec> specs(const Mesh& mesh, const Shape& shape) {
  std::vector<Spec> out;
  const auto all = choices(mesh.num_axes());
  for (const Axes& a : all)
    for (const Axes& b : all) {
      if (overlap(a, b)) continue;
      for (const DimSpec& first : ways(mesh, shape[0], a))
        for (const DimSpec& second : ways(mesh, shape[1], b)) {
          Spec s;
          s.dims.push_back(first);
          s.dims.push_back(second);
          for (uint32_t pending = 0; pending < 1u << mesh.num_axes(); ++pending) {
            Spec with = s;
            bool fits = true;
            for (int axis = 0; axis < mesh.num_axes(); ++axis) {
              if (!(pending >> axis & 1)) continue;
              fits &= !s.splits(axis);
              with.add_pending(axis, ReduceOp::kSum);
            }
            if (fits && std::find(out.begin(), out.end(), with) == out.end()) out.push_back(with);
          }
        }
    }
  return out;
}

std::vector<Move> moves(const std::vector<dist::Stage>& stages) {
  std::vector<Move> out;
  for (const dist::Stage& s : stages)
    for (const dist::Step& step : s.steps) out.push_back(step.move);
  return out;
}

// Whole numbers: sums are exact.
Tensor numbers(const Shape& shape) { return arange(shape.numel()).reshape(shape).to(kFloat64); }

// Every `stride`-th pair from the pair `first` on.
void all_pairs(const Mesh& mesh, const Shape& shape, size_t first, size_t stride) {
  const Tensor whole = numbers(shape);
  const std::vector<Spec> all = specs(mesh, shape);
  size_t count = 0, failures = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    std::vector<Tensor> parts;
    for (int r = 0; r < mesh.size(); ++r) {
      Tensor part = dist::shard(mesh, all[i], whole, r).to(Device::cpu());
      if (!all[i].pending.empty()) {  // terms: this rank's share is not all of it
        Axes axes;
        for (const auto& p : all[i].pending) axes.push_back(p.axis);
        Spec rest = all[i];
        rest.pending = {};
        const Tensor own = dist::shard(mesh, rest, whole, r).to(Device::cpu());
        const int64_t n = mesh.parts(axes), at = mesh.coordinate(r, axes);
        part = own * static_cast<double>(at + 1);
        if (at + 1 == n) part = own * static_cast<double>(1 - n * (n - 1) / 2);
      }
      parts.push_back(part);
    }
    const double gather = dist::cost_of(mesh, dist::reshard(mesh, all[i], Spec::replicated(shape)), kFloat64).bytes;
    for (size_t j = 0; j < all.size() && failures < 10; ++j) {
      if (count++ % stride != first) continue;
      std::string why;
      const auto stages = dist::reshard(mesh, all[i], all[j]);
      try {
        why = difference(mesh, all[j], simulate(mesh, stages, parts), whole, true);
      } catch (const Error& e) {
        why = e.what();
      }
      const double bytes = dist::cost_of(mesh, stages, kFloat64).bytes;
      if (why.empty() && bytes > gather) why = cat(bytes, " bytes; gathering all takes ", gather);
      if (why.empty()) continue;
      ++failures;
      std::string steps;
      for (Move m : moves(stages)) steps += cat(" ", to_string(m));
      ADD_FAILURE() << to_string(mesh, all[i]) << " to " << to_string(mesh, all[j]) << ":" << steps << ": " << why;
    }
  }
  ::testing::Test::RecordProperty("specs", static_cast<int>(all.size()));
}

TEST(Reshard, AllPairsOverTwoByTwoByTwo) { all_pairs(Mesh({{"a", 2}, {"b", 2}, {"c", 2}}), {8, 4}, 0, 5); }
TEST(Reshard, AllPairsOverTwoByTwoByTwoUneven) { all_pairs(Mesh({{"a", 2}, {"b", 2}, {"c", 2}}), {6, 5}, 0, 1); }
TEST(Reshard, AllPairsOverTwoByThree) { all_pairs(Mesh({{"a", 2}, {"b", 3}}), {12, 6}, 0, 1); }
TEST(Reshard, AllPairsOverTwoByThreeUneven) { all_pairs(Mesh({{"a", 2}, {"b", 3}}), {7, 5}, 0, 1); }

// ---- the shortest ways ----

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
  // Slicing comes before what is gathered or exchanged: fewer bytes go.
  const auto steps = way(spec("a", ""), spec("", "a,b"));
  ASSERT_FALSE(steps.empty());
  EXPECT_LE(dist::cost_of(kMesh, dist::reshard(kMesh, spec("a", ""), spec("", "b,a")), kFloat64).bytes, 8.0 * 32 / 2);
}

}  // namespace
}  // namespace weft::testing
