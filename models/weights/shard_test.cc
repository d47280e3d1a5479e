// Shards of cells: a rank reads exactly the elements of its shard, and their values equal the values in the whole cell.
#include "models/weights/shard.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>

#include "framework/base/thread_pool.h"

namespace weft::weights {
namespace {

// One tensor, in which element i is i; counts the elements that are read.
class Counted final : public WeightSource {
 public:
  explicit Counted(const Shape& shape) : shape_(shape), values_(static_cast<size_t>(shape.numel())) {
    for (size_t i = 0; i < values_.size(); ++i) values_[i] = static_cast<float>(i);
  }
  const std::string& path() const override { return path_; }
  std::vector<std::string> names() const override { return {"x"}; }
  std::optional<WeightInfo> find(std::string_view) const override { return WeightInfo{kFloat32, shape_}; }
  const void* read(std::string_view, int64_t begin, int64_t end, std::vector<std::byte>&) const override {
    EXPECT_TRUE(begin >= 0 && begin < end && end <= shape_.numel()) << begin << " to " << end;
    elements += end - begin;
    int64_t before = most;
    while (before < end - begin && !most.compare_exchange_weak(before, end - begin)) {
    }
    return values_.data() + begin;
  }
  void release(std::string_view) const override {}
  mutable std::atomic<int64_t> elements{0}, most{0};  // elements of all reads, and of the largest one

 private:
  const std::string path_ = "file";
  const Shape shape_;
  std::vector<float> values_;
};

using Random = std::mt19937;

int64_t below(Random& random, int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); }

// Up to three ranges of the indices of a dim, in any order.
IndexRanges random_ranges(Random& random, int64_t extent) {
  IndexRanges ranges;
  std::vector<int64_t> cuts{0, extent};
  for (int i = 0; i < 4; ++i) cuts.push_back(below(random, extent + 1));
  std::sort(cuts.begin(), cuts.end());
  for (size_t i = 0; i + 1 < cuts.size(); i += 1 + below(random, 2)) add_range(ranges, cuts[i], cuts[i + 1]);
  if (random() % 2) std::reverse(ranges.begin(), ranges.end());
  return ranges;
}

TEST(Shard, EqualsTheCellAndReadsNoMore) {
  Random random(11);
  const auto draw = [&](int64_t most) { return below(random, most) + 1; };
  for (int i = 0; i < 400; ++i) {
    const int64_t G = draw(3), R = draw(3), D = 2 * draw(3), in = draw(5), E = draw(3), F = draw(4);
    Sizes s({{"heads", str_cat(G * R)}, {"kv_heads", str_cat(G)}, {"head_dim", str_cat(D)}, {"dim", "1"}});
    Sizes plain = s;
    plain.kv_heads = plain.heads;
    const int64_t H = G * R;
    const struct {
      Layout layout;
      Shape cell;
      const Sizes& sizes;
    } cases[] = {
        {Layout::kSame, {E, in, F}, s},
        {Layout::kSame, {in}, s},
        {Layout::kTransposed, {in, F}, s},
        {Layout::kQ, {G * (R + 2) * D, in}, s},
        {Layout::kK, {G * (R + 2) * D, in}, s},
        {Layout::kV, {G * (R + 2) * D}, s},
        {Layout::kQkvTransposed, {3 * H * D, in}, plain},
        {Layout::kQPermuted, {G * (R + 2) * D, in}, s},
        {Layout::kKPermuted, {G * (R + 2) * D, in}, s},
        {Layout::kQkv, {3 * H * D, in}, plain},
        {Layout::kQkv, {3 * H * D}, plain},
        {Layout::kExpert, {E, in, F}, s},
        {Layout::kExpertsGate, {E, in, F}, s},
        {Layout::kExpertsUp, {E, in, F}, s},
        {Layout::kExperts, {E, F, in}, s},
    };
    for (const auto& c : cases) {
      SCOPED_TRACE(str_cat(static_cast<int>(c.layout), " ", c.cell, " round ", i));
      const Counted file(source_shape(c.layout, c.cell, c.sizes));
      Piece piece = piece_of(c.layout, c.cell, c.sizes, E - 1);
      piece.source = "x";
      std::vector<float> whole(static_cast<size_t>(c.cell.numel()), -1);
      copy_piece(file, piece, kFloat32, whole.data());
      TensorPart part;
      for (const int64_t extent : c.cell) part.dims.push_back(random_ranges(random, extent));
      std::vector<float> want(static_cast<size_t>(part.shape().numel()), -1), got = want;
      each_run(part, c.cell,
               [&](const ElementRun& r) { std::copy_n(whole.begin() + r.whole, r.count, want.begin() + r.part); });
      file.elements = 0;
      for (const Piece& p : pieces_in(piece, c.cell, part)) copy_piece(file, p, kFloat32, got.data());
      ASSERT_EQ(got, want);
      EXPECT_EQ(file.elements, std::count_if(want.begin(), want.end(), [](float x) { return x >= 0; }));
    }
  }
}

// A matrix that is larger than one task reads, in both orders.
TEST(Shard, LargePiecesAreCopiedByManyTasks) {
  const Shape cell{1500, 1100};
  for (const Layout layout : {Layout::kSame, Layout::kTransposed}) {
    const Sizes s({{"heads", "1"}, {"dim", "2"}});
    const Counted file(source_shape(layout, cell, s));
    Piece piece = piece_of(layout, cell, s);
    piece.source = "x";
    std::vector<float> got(static_cast<size_t>(cell.numel()), -1);
    copy_piece(file, piece, kFloat32, got.data());
    EXPECT_EQ(file.elements, cell.numel());
    for (int64_t r = 0; r < cell[0]; ++r)
      for (int64_t c = 0; c < cell[1]; ++c)
        ASSERT_EQ(got[static_cast<size_t>(r * cell[1] + c)],
                  static_cast<float>(layout == Layout::kSame ? r * cell[1] + c : c * cell[0] + r));
  }
}

// A read of a stack of matrices needs memory for a part of one matrix.
TEST(Shard, AStackOfMatricesIsCopiedInParts) {
  const Sizes s({{"heads", "1"}, {"dim", "2"}, {"experts", "2"}});
  const Shape cell{2, 1200, 1000};
  const Counted file(source_shape(Layout::kExperts, cell, s));
  Piece piece = piece_of(Layout::kExperts, cell, s);
  piece.source = "x";
  ASSERT_EQ(piece.extents.size(), 3u);
  std::vector<float> got(static_cast<size_t>(cell.numel()), -1);
  copy_piece(file, piece, kFloat32, got.data());
  const auto at = [](const std::vector<int64_t>& strides, int64_t a, int64_t b, int64_t c) {
    return a * strides[0] + b * strides[1] + c * strides[2];
  };
  for (int64_t a = 0; a < piece.extents[0]; ++a)
    for (int64_t b = 0; b < piece.extents[1]; ++b)
      for (int64_t c = 0; c < piece.extents[2]; ++c)
        ASSERT_EQ(got[static_cast<size_t>(piece.to_offset + at(piece.to, a, b, c))],
                  static_cast<float>(piece.from_offset + at(piece.from, a, b, c)));
  EXPECT_LE(file.most * 4, 4 << 20);
}

// The shard of half of the columns of a matrix has one piece, and so has half of the heads.
TEST(Shard, HasFewPieces) {
  const Sizes s({{"heads", "8"}, {"kv_heads", "4"}, {"head_dim", "16"}, {"dim", "64"}});
  const Shape qkv{4 * 4 * 16, 64};
  TensorPart columns = TensorPart::all(qkv), rows = columns, odd = columns;
  columns.dims[1] = {{32, 64}};
  rows.dims[0] = {{0, 128}};
  odd.dims[0] = {{5, 250}};
  for (const Layout layout : {Layout::kQ, Layout::kK, Layout::kV}) {
    const Piece piece = piece_of(layout, qkv, s);
    EXPECT_EQ(pieces_in(piece, qkv, columns).size(), 1u);
    EXPECT_EQ(pieces_in(piece, qkv, rows).size(), 1u);
    EXPECT_LE(pieces_in(piece, qkv, odd).size(), 3u);
  }
}

}  // namespace
}  // namespace weft::weights
