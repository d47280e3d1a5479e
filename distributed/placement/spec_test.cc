#include "distributed/placement/spec.h"

#include <gtest/gtest.h>

#include "ops/core/core.h"

namespace weft::dist {
namespace {

const Mesh kMesh = Mesh::parse("dp2,cp2,tp4");

DimSpec dim(std::initializer_list<std::pair<int64_t, const char*>> segs) {
  DimSpec d;
  for (const auto& [extent, names] : segs) d.push_back({extent, kMesh.axes(names)});
  return canonical(kMesh, d);
}

TEST(Spec, AdjacentSegmentsBecomeOneWhereThatSaysTheSame) {
  EXPECT_EQ(dim({{8, "dp"}, {4, ""}}), dim({{32, "dp"}}));
  EXPECT_EQ(dim({{2, "dp"}, {16, "tp"}}), dim({{32, "dp,tp"}}));
  EXPECT_EQ(dim({{8, "dp"}, {4, "tp"}}).size(), 2u);
  EXPECT_EQ(dim({{7, "dp"}, {4, ""}}).size(), 2u);  // 7 over 2 falls between elements of 28 over 2
  EXPECT_EQ(dim({{1, ""}, {4, "dp"}}), dim({{4, "dp"}}));
}

TEST(Spec, CutsFindTheFactorsOfADim) {
  auto parts = cut(kMesh, dim({{8, "dp"}, {4, "tp"}}), {8, 4});
  ASSERT_TRUE(parts);
  EXPECT_EQ((*parts)[0], dim({{8, "dp"}}));
  EXPECT_EQ((*parts)[1], dim({{4, "tp"}}));
  parts = cut(kMesh, dim({{32, "dp"}}), {8, 4});
  ASSERT_TRUE(parts);
  EXPECT_EQ((*parts)[0], dim({{8, "dp"}}));
  EXPECT_TRUE(whole((*parts)[1]));
  // Heads: four ranks over 2 groups of 6: two of the groups' axes, two inside.
  parts = cut(kMesh, dim({{12, "tp"}}), {2, 6});
  ASSERT_TRUE(parts);
  EXPECT_EQ((*parts)[0], dim({{2, "tp:0"}}));
  EXPECT_EQ((*parts)[1], dim({{6, "tp:1"}}));
  EXPECT_FALSE(cut(kMesh, dim({{12, "tp"}}), {3, 4}));  // a rank's block would cross a factor
  EXPECT_EQ(join(kMesh, *parts), dim({{12, "tp"}}));
  EXPECT_TRUE(cut(kMesh, dim({{12, ""}}), {3, 4}));
}

TEST(Spec, CutAndJoinAreInverseWhereverTheyApply) {
  for (const char* names : {"", "dp", "tp", "dp,tp", "cp,dp", "tp:0", "dp,cp,tp"})
    for (int64_t a : {1, 2, 3, 4, 6, 16})
      for (int64_t b : {1, 2, 4, 5, 8, 12}) {
        const DimSpec whole_dim = dim({{a * b, names}});
        const auto parts = cut(kMesh, whole_dim, {a, b});
        if (!parts) continue;
        const DimSpec again = join(kMesh, *parts);
        for (int r = 0; r < kMesh.size(); ++r)
          EXPECT_EQ(global_indices(kMesh, again, r), global_indices(kMesh, whole_dim, r))
              << names << " " << a << " " << b;
      }
}

TEST(Spec, RanksOwnEveryIndexOnce) {
  for (const DimSpec& d : {dim({{7, "tp"}}), dim({{5, "dp,tp"}}), dim({{3, "dp"}, {5, "tp"}}), dim({{2, "tp"}}),
                           one_segment(16, kMesh.axes("cp"), SegLayout::kHeadTail),
                           one_segment(9, kMesh.axes("tp"), SegLayout::kHeadTail)}) {
    int64_t extent = 1;
    for (const Seg& s : d) extent *= s.extent;
    std::vector<int> seen(static_cast<size_t>(extent));
    for (int r : kMesh.group(0, axes_of(d))) {
      const auto own = global_indices(kMesh, d, r);
      EXPECT_EQ(static_cast<int64_t>(own.size()), local_extent(kMesh, d, r));
      for (int64_t i : own) ++seen[static_cast<size_t>(i)];
    }
    EXPECT_EQ(seen, std::vector<int>(static_cast<size_t>(extent), 1));
  }
  EXPECT_EQ(global_indices(kMesh, one_segment(8, kMesh.axes("cp"), SegLayout::kHeadTail), 4),
            (std::vector<int64_t>{2, 3, 4, 5}));
}

TEST(Spec, GatheringTheMinorAxesLeavesTheMajorSplit) {
  const DimSpec fine = dim({{7, "dp,tp"}}), coarse = dim({{7, "dp"}});
  for (int r = 0; r < kMesh.size(); ++r) {
    std::vector<int64_t> joined;
    for (int peer : kMesh.group(r, "tp"))
      for (int64_t i : global_indices(kMesh, fine, peer)) joined.push_back(i);
    EXPECT_EQ(joined, global_indices(kMesh, coarse, r));
  }
}

TEST(Spec, ShardsComeTogetherAgain) {
  const Tensor x = arange(3 * 5 * 8).reshape({3, 5, 8}).to(kFloat32);
  Spec s = Spec::replicated(x.shape());
  s.dims[0] = dim({{3, "dp"}});
  s.dims[2] = dim({{8, "tp"}});
  for (bool pending : {false, true}) {
    if (pending) s.add_pending(kMesh.axes("cp")[0], ReduceOp::kSum);
    std::vector<Tensor> parts;
    for (int r = 0; r < kMesh.size(); ++r) parts.push_back(shard(kMesh, s, x, r));
    EXPECT_EQ(unshard(kMesh, s, x.type(), parts).to_vector<float>(), x.to_vector<float>());
  }
  EXPECT_EQ(to_string(kMesh, s), "[3@dp, 5, 8@tp] + sum@cp");
  s.dims[1] = dim({{5, "cp"}, {1, ""}});
  EXPECT_FALSE(even(kMesh, s));
}

// The runs of a shard are the ranges of its bytes in a file: each element once, as long as they can be.
TEST(Spec, RunsAreTheBytesOfAShard) {
  const Shape shape{6, 5, 8};
  const auto runs_of = [&](const Spec& s, int rank) {
    std::vector<ElementRun> runs;
    each_run(part_of(kMesh, s, rank), shape, [&](const ElementRun& r) { runs.push_back(r); });
    return runs;
  };
  const struct {
    Spec spec;
    size_t runs;  // on rank 5, whose coordinates are dp 0, cp 1, tp 1
  } cases[] = {
      {Spec::replicated(shape), 1},
      {{.dims = {dim({{6, "dp"}}), dim({{5, ""}}), dim({{8, ""}})}}, 1},
      {{.dims = {dim({{6, ""}}), dim({{5, ""}}), dim({{8, "tp"}})}}, 30},
      {{.dims = {dim({{6, "dp"}}), dim({{5, "tp"}}), dim({{8, ""}})}}, 3},
      {{.dims = {dim({{3, ""}, {2, "dp"}}), dim({{5, ""}}), dim({{8, ""}})}}, 3},
      // Blocks 1 and 2 of 4: one range. Rank 0 has blocks 0 and 3, and the end of a row is followed by the next row.
      {{.dims = {dim({{6, ""}}), dim({{5, ""}}), one_segment(8, kMesh.axes("cp"), SegLayout::kHeadTail)}}, 30},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(runs_of(c.spec, 5).size(), c.runs) << to_string(kMesh, c.spec);
    std::vector<int> seen(static_cast<size_t>(shape.numel()));
    for (int r : kMesh.group(0, c.spec.split_axes())) {
      int64_t at = 0, end = -1;
      for (const ElementRun& run : runs_of(c.spec, r)) {
        EXPECT_EQ(run.part, at);
        EXPECT_NE(run.whole, end);
        at += run.count, end = run.whole + run.count;
        for (int64_t i = run.whole; i < end; ++i) ++seen[static_cast<size_t>(i)];
      }
      EXPECT_EQ(at, local_shape(kMesh, c.spec, r).numel());
      EXPECT_EQ(part_of(kMesh, c.spec, r).shape(), local_shape(kMesh, c.spec, r));
    }
    EXPECT_EQ(seen, std::vector<int>(seen.size(), 1)) << to_string(kMesh, c.spec);
  }
  EXPECT_EQ(runs_of(cases[5].spec, 0).size(), 31u);
  std::vector<ElementRun> scalar;
  each_run(TensorPart::all({}), {}, [&](const ElementRun& r) { scalar.push_back(r); });
  EXPECT_EQ(scalar, (std::vector<ElementRun>{{0, 0, 1}}));
  each_run(TensorPart::all({3, 0}), {3, 0}, [&](const ElementRun&) { ADD_FAILURE(); });
}

}  // namespace
}  // namespace weft::dist
