#include "ops/composite/arrange.h"

#include "framework/autodiff/grad.h"
#include "framework/testing/gradcheck.h"
#include "ops/composite/testing/composite_table.h"
#include "ops/core/core.h"

namespace weft::testing {
namespace {

using I = std::vector<int64_t>;

Tensor ints(const I& v) { return Tensor::from_vector(v, {static_cast<int64_t>(v.size())}); }
Tensor counting(const Shape& shape) { return reshape(arange(shape.numel()), shape); }
I values(const Tensor& x) { return x.to_vector<int64_t>(); }
// Element number i of the result is element order(i...) of the operand: the reference of a movement.
Reals numbers(const std::vector<Reals>& in) { return in[0]; }

using Args = std::span<const Tensor>;
const Operand kX{Shape{3, 4}};

Reals picked(const Reals& x, const I& order) {
  Reals r;
  for (int64_t i : order) r.push_back(x[static_cast<size_t>(i)]);
  return r;
}
auto order(const I& o) {
  return [o](const std::vector<Reals>& in) { return picked(in[0], o); };
}

const std::vector<CompositeRow> kTable = {
    {"repeat",
     {kX},
     [](Args a) {
       return repeat(a[0].slice(0, 0, 1), {2, 1, 2});
     },
     order({0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3})},
    {"flip",
     {kX},
     [](Args a) {
       return flip(a[0], {0, 1});
     },
     order({11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0})},
    {"flip_last", {kX}, [](Args a) { return flip(a[0], -1); }, order({3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8})},
    {"roll",
     {kX},
     [](Args a) {
       return roll(a[0], {1, -1}, {0, 1});
     },
     order({9, 10, 11, 8, 1, 2, 3, 0, 5, 6, 7, 4})},
    {"roll_flat", {kX}, [](Args a) { return roll(a[0], 1); }, order({11, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10})},
    {"pad_reflect",
     {kX},
     [](Args a) {
       return pad(a[0], {1, 2}, "reflect");
     },
     order({1, 0, 1, 2, 3, 2, 1, 5, 4, 5, 6, 7, 6, 5, 9, 8, 9, 10, 11, 10, 9})},
    {"pad_replicate",
     {kX},
     [](Args a) {
       return pad(a[0], {2, 1}, "replicate");
     },
     order({0, 0, 0, 1, 2, 3, 3, 4, 4, 4, 5, 6, 7, 7, 8, 8, 8, 9, 10, 11, 11})},
    {"pad_circular",
     {kX},
     [](Args a) {
       return pad(a[0], {1, 2}, "circular");
     },
     order({3, 0, 1, 2, 3, 0, 1, 7, 4, 5, 6, 7, 4, 5, 11, 8, 9, 10, 11, 8, 9})},
    {"rot90", {kX}, [](Args a) { return rot90(a[0]); }, order({3, 7, 11, 2, 6, 10, 1, 5, 9, 0, 4, 8})},
    {"unflatten",
     {kX},
     [](Args a) {
       return unflatten(a[0], 1, {2, -1});
     },
     numbers},
    {"narrow", {kX}, [](Args a) { return narrow(a[0], 1, -3, 2); }, order({1, 2, 5, 6, 9, 10})},
    {"dstack",
     {kX},
     [](Args a) {
       return dstack({a[0], a[0]});
     },
     order({0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11})},
};
WEFT_TEST_COMPOSITES(Arrange, kTable);

TEST(Arrange, Stacks) {
  const Tensor a = ints({1, 2}), b = ints({3, 4}), m = counting({2, 2});
  EXPECT_EQ(values(vstack({a, b})), (I{1, 2, 3, 4}));
  EXPECT_EQ(vstack({m, a}).shape(), Shape({3, 2}));
  EXPECT_EQ(values(hstack({a, b})), (I{1, 2, 3, 4}));
  EXPECT_EQ(hstack({m, m}).shape(), Shape({2, 4}));
  EXPECT_EQ(hstack({select(a, 0, 0), select(b, 0, 0)}).shape(), Shape({2}));
  EXPECT_EQ(dstack({a, b}).shape(), Shape({1, 2, 2}));
  EXPECT_EQ(values(column_stack({a, m})), (I{1, 0, 1, 2, 2, 3}));
  EXPECT_EQ(values(block_diag({ints({5}), m, a})), (I{5, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 3, 0, 0, 0, 0, 0, 1, 2}));
  EXPECT_EQ(block_diag({zeros({0, 2}), ones({1, 1})}).shape(), Shape({1, 3}));
  EXPECT_EQ(error_of([] { vstack({}); }), "vstack: no tensors; need one or more");
}

TEST(Arrange, Repeats) {
  const Tensor x = ints({1, 2});
  EXPECT_EQ(values(repeat(x, {2, 2})), (I{1, 2, 1, 2, 1, 2, 1, 2}));
  EXPECT_EQ(repeat(x, 3).shape(), Shape({6}));
  EXPECT_EQ(repeat(x, {3, 1}).shape(), Shape({3, 2}));
  EXPECT_EQ(repeat(x, {2, 0}).shape(), Shape({2, 0}));
  EXPECT_EQ(values(repeat(counting({2, 2}), {1, 2})), (I{0, 1, 0, 1, 2, 3, 2, 3}));
  EXPECT_EQ(values(tile(counting({2, 2}), 2)), (I{0, 1, 0, 1, 2, 3, 2, 3}));
  EXPECT_EQ(repeat(counting({2, 2, 1, 1, 1, 1, 1, 2}), {1, 3, 1, 1, 1, 1, 1, 2}).shape(),
            Shape({2, 6, 1, 1, 1, 1, 1, 4}));
  EXPECT_EQ(error_of([] {
              repeat(ones({2, 2}), {2});
            }),
            "repeat: times [2] for [2, 2]; need a number for each dim, or tile()");
  EXPECT_EQ(error_of([] { tile(ones({2}), {-1}); }), "tile: times [-1]; need 0 or more");
  EXPECT_EQ(values(repeat_interleave(x, ints({2, 1}), 0)), (I{1, 1, 2}));
  EXPECT_EQ(values(repeat_interleave(x, ints({0, 3}))), (I{2, 2, 2}));
  EXPECT_EQ(values(repeat_interleave(x, 2)), (I{1, 1, 2, 2}));
  EXPECT_EQ(values(repeat_interleave(counting({2, 2}), ints({2}), 1)), (I{0, 0, 1, 1, 2, 2, 3, 3}));
  EXPECT_EQ(error_of([&] {
              repeat_interleave(x, ints({1, 2, 3}), 0);
            }),
            "repeat_interleave: 3 repeats for dim 0 of [2]; need 2 or 1");
  for (const Tensor& many : {ints({1, INT64_MAX}), ints({INT64_MAX})})
    EXPECT_EQ(error_of([&] { repeat_interleave(x, many, 0); }),
              "repeat_interleave: shape [9223372036854775807] has too many elements; need fewer than 2^58");
  EXPECT_EQ(error_of([&] { repeat_interleave(x, ints({-1}), 0); }), "repeat_interleave: -1 repeats; need 0 or more");
  EXPECT_NE(error_of([&] {
              capture([&](Tensor n) { return repeat_interleave(x, n, 0); }, ints({1, 2}));
            }).find("repeat_interleave: the shape of the result depends on the values of i64[2], which do not exist"),
            std::string::npos);
}

TEST(Arrange, Dims) {
  const Tensor x = counting({2, 3, 4});
  EXPECT_EQ(swapaxes(x, 0, -1).shape(), Shape({4, 3, 2}));
  EXPECT_EQ(swapdims(x, 0, 1).shape(), Shape({3, 2, 4}));
  EXPECT_EQ(moveaxis(x, 0, -1).shape(), Shape({3, 4, 2}));
  EXPECT_EQ(moveaxis(x, {0, 1}, {2, 0}).shape(), Shape({3, 4, 2}));
  EXPECT_EQ(ravel(x).shape(), Shape({24}));
  EXPECT_EQ(unflatten(x, -1, {2, 2}).shape(), Shape({2, 3, 2, 2}));
  EXPECT_EQ(error_of([&] {
              unflatten(x, 1, {2, -1});
            }),
            "unflatten: sizes [2, -1] of dim 1 of [2, 3, 4]; need a product of 3, with one -1 at most");
  EXPECT_EQ(error_of([&] {
              moveaxis(x, {0, 0}, {0, 1});
            }),
            "moveaxis: dims [0, 0] and positions [0, 1]; need each once");
  EXPECT_EQ(atleast_1d(select(ints({7}), 0, 0)).shape(), Shape({1}));
  EXPECT_EQ(atleast_2d(ints({1, 2})).shape(), Shape({1, 2}));
  EXPECT_EQ(atleast_3d(ints({1, 2})).shape(), Shape({1, 2, 1}));
  EXPECT_EQ(atleast_3d(counting({2, 3})).shape(), Shape({2, 3, 1}));
  EXPECT_EQ(broadcast_tensors({ones({3, 1}), ones({2})})[1].shape(), Shape({3, 2}));
}

TEST(Arrange, TurnsAndFlips) {
  const Tensor m = counting({2, 3});
  EXPECT_EQ(values(fliplr(m)), (I{2, 1, 0, 5, 4, 3}));
  EXPECT_EQ(values(flipud(m)), (I{3, 4, 5, 0, 1, 2}));
  EXPECT_EQ(values(rot90(m)), (I{2, 5, 1, 4, 0, 3}));
  EXPECT_EQ(values(rot90(m, 2)), (I{5, 4, 3, 2, 1, 0}));
  EXPECT_EQ(values(rot90(m, -1)), (I{3, 0, 4, 1, 5, 2}));
  EXPECT_EQ(values(rot90(m, 4)), values(m));
  EXPECT_EQ(values(flip(m, {})), values(m));
  EXPECT_EQ(values(pad(m, {0, 0, 1, 1}, "reflect")), (I{3, 4, 5, 0, 1, 2, 3, 4, 5, 0, 1, 2}));
  EXPECT_EQ(error_of([&] {
              pad(m, {3, 0}, "reflect");
            }),
            "pad: widths 3 and 0 for dim 1 of [2, 3] with mode reflect; need at most 2");
  EXPECT_EQ(error_of([&] {
              pad(m, {-2, -1}, "replicate");
            }),
            "pad: widths -2 and -1 for dim 1 of [2, 3] leave nothing; need one element or more");
  EXPECT_EQ(error_of([&] {
              pad(m, {1, 1}, "mirror");
            }),
            "pad: mode is 'mirror'; need constant, reflect, replicate or circular");
  EXPECT_EQ(flip(zeros({0, 3}), {0, 1}).shape(), Shape({0, 3}));
  EXPECT_EQ(error_of([&] { flip(m, {0, -2}); }), "flip: dims [0, -2] name dim 0 twice; need each once");
  EXPECT_EQ(error_of([&] { roll(m, {1, 2}); }), "roll: 2 shifts and no dims; need one shift, or a dim for each");
  EXPECT_EQ(error_of([] { fliplr(ones(3)); }), "fliplr: got f32[3]; need two dims or more");
}

// Every element size, backwards over rows longer than a block, with offsets and steps.
TEST(Arrange, FlipsOfEveryElementSize) {
  for (DType t : {kFloat64, kFloat32, kBFloat16, kInt16, kUInt8}) {
    const Tensor x = cast(remainder(reshape(arange(3 * 301), {3, 301}), 251), t);
    for (const Tensor& from : {x, x.slice(1, 1, 300), x.slice(1, 0, 301, 3), transpose(x, 0, 1)}) {
      const I got = values(flip(from, 1)), want = values(from);
      const int64_t n = from.size(1);
      for (size_t i = 0; i < got.size(); ++i) {
        const int64_t row = static_cast<int64_t>(i) / n, column = static_cast<int64_t>(i) % n;
        ASSERT_EQ(got[i], want[static_cast<size_t>(row * n + n - 1 - column)]) << t << from.shape() << i;
      }
    }
  }
}

TEST(Arrange, Pieces) {
  const Tensor x = ints({0, 1, 2, 3, 4, 5, 6});
  auto sizes = [](const std::vector<Tensor>& pieces) {
    I r;
    for (const Tensor& p : pieces) r.push_back(p.size(0));
    return r;
  };
  EXPECT_EQ(sizes(tensor_split(x, 3)), (I{3, 2, 2}));
  EXPECT_EQ(sizes(tensor_split(x, 9)), (I{1, 1, 1, 1, 1, 1, 1, 0, 0}));
  EXPECT_EQ(sizes(tensor_split(x, {2, 5})), (I{2, 3, 2}));
  EXPECT_EQ(sizes(tensor_split(x, {3})), (I{3, 4}));
  EXPECT_EQ(sizes(tensor_split(x, {-2, 3, 100})), (I{5, 0, 4, 0}));
  EXPECT_EQ(values(narrow(x, 0, -2, 2)), (I{5, 6}));
  EXPECT_EQ(error_of([&] { narrow(x, 0, 5, 3); }),
            "narrow: start 5 and length 3 of dim 0 of [7]; need a part of 0 to 7");
  EXPECT_EQ(error_of([&] { tensor_split(x, 0); }), "tensor_split: 0 pieces; need 1 or more");
}

}  // namespace
}  // namespace weft::testing
