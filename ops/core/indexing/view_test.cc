#include "ops/core/indexing/view.h"

#include <gtest/gtest.h>

#include "framework/autodiff/grad.h"
#include "framework/testing/gradcheck.h"
#include "ops/core/core.h"

namespace weft {
namespace {

using testing::error_of;

std::vector<float> values(const Tensor& t) { return t.to_vector<float>(); }
using V = std::vector<float>;

Tensor counting(const Shape& shape) { return reshape(arange(shape.numel(), {.dtype = kFloat32}), shape); }

TEST(View, Reshape) {
  const Tensor x = counting({2, 3, 4});
  EXPECT_EQ(x.reshape({4, -1}).shape(), Shape({4, 6}));
  EXPECT_EQ(reshape(x, {-1}).shape(), Shape({24}));
  EXPECT_EQ(values(reshape(x.transpose(0, 2), {-1})), values(x.permute({2, 1, 0}).contiguous()));
  EXPECT_EQ(x.flatten(1).shape(), Shape({2, 12}));
  EXPECT_EQ(x.flatten().shape(), Shape({24}));
  EXPECT_EQ(x.unsqueeze(-1).shape(), Shape({2, 3, 4, 1}));
  EXPECT_EQ(x.unsqueeze(1).squeeze(1).shape(), x.shape());
  EXPECT_EQ(x.squeeze(0).shape(), x.shape());
  EXPECT_EQ(squeeze(x.unsqueeze(0).unsqueeze(-1)).shape(), x.shape());
  EXPECT_EQ(error_of([&] {
              x.reshape({5, -1});
            }),
            "reshape: [2, 3, 4] has 24 elements; shape [5, -1] does not divide them; need a shape that fits");
  EXPECT_EQ(error_of([&] { x.reshape({5, 5}); }), "reshape: [2, 3, 4] has 24 elements; shape [5, 5] needs 25");
  EXPECT_EQ(error_of([&] { x.reshape({-1, -1}); }), "reshape: shape [-1, -1] has two extents of -1; need one at most");
}

TEST(View, ViewsShareMemory) {
  const Tensor x = counting({4, 6});
  for (const Tensor& v : {x.t(), x.slice(1, 1, 6, 2), x[2], x.expand({3, 4, 6}), x.reshape({2, 2, 6})})
    EXPECT_EQ(v.get().storage.get(), x.get().storage.get());
  EXPECT_NE(x.t().contiguous().get().storage.get(), x.get().storage.get());
  EXPECT_EQ(x.contiguous().impl(), x.impl());
}

TEST(View, SlicingAsInPython) {
  const Tensor x = counting({7});
  auto cut = [&](int64_t b, int64_t e, int64_t s = 1) { return values(x.slice(0, b, e, s)); };
  EXPECT_EQ(cut(2, 5), (V{2, 3, 4}));
  EXPECT_EQ(cut(-3, 100), (V{4, 5, 6}));
  EXPECT_EQ(cut(-100, -5), (V{0, 1}));
  EXPECT_EQ(cut(5, 2), V{});
  EXPECT_EQ(cut(1, 7, 3), (V{1, 4}));
  EXPECT_EQ(cut(0, 7, 100), (V{0}));
  EXPECT_EQ(values(x[-1]), (V{6}));
  EXPECT_EQ(x[0].dim(), 0);
  EXPECT_EQ(error_of([&] { x[7]; }), "select: index 7 is out of range for dim 0 of [7]; need -7 to 6");
  EXPECT_EQ(error_of([&] { x.slice(1, 0, 1); }).substr(0, 6), "slice:");
  EXPECT_EQ(error_of([&] { x.slice(0, 0, 1, 0); }), "slice: step is 0; need 1 or more");
}

TEST(View, PermuteAndFriends) {
  const Tensor x = counting({2, 3, 4});
  EXPECT_EQ(x.permute({-1, 0, 1}).shape(), Shape({4, 2, 3}));
  EXPECT_EQ(movedim(x, 0, -1).shape(), Shape({3, 4, 2}));
  EXPECT_EQ(movedim(x, -1, 0).shape(), Shape({4, 2, 3}));
  EXPECT_EQ(error_of([&] {
              x.permute({0, 0, 1});
            }),
            "permute: dims [0, 0, 1] of [2, 3, 4]; need each of the 3 dims once");
  EXPECT_EQ(error_of([&] { x.t(); }), "t: got f32[2, 3, 4]; need at most two dims");
}

TEST(View, Expand) {
  const Tensor x = counting({3, 1});
  EXPECT_EQ(values(x.expand({-1, 2})), (V{0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(x.expand({2, -1, 4}).shape(), Shape({2, 3, 4}));
  EXPECT_EQ(error_of([&] { x.expand({2, 2}); }).substr(0, 41), "expand: [3, 1] does not broadcast to [2, ");
  EXPECT_NE(error_of([&] {
              x.expand({-1, 3, 1});
            }).find("expand: shape [-1, 3, 1] has -1 in a new dim 0"),
            std::string::npos);
}

TEST(View, Joining) {
  const Tensor a = counting({1, 2}), b = counting({2, 2});
  EXPECT_EQ(values(cat({a, b})), (V{0, 1, 0, 1, 2, 3}));
  EXPECT_EQ(cat({b, b, b}, -1).shape(), Shape({2, 6}));
  EXPECT_EQ(cat({b, b.to(kFloat64)}, 0).dtype(), kFloat64);
  EXPECT_EQ(stack({b, b}, -1).shape(), Shape({2, 2, 2}));
  EXPECT_EQ(values(stack({a, a})), (V{0, 1, 0, 1}));
  EXPECT_EQ(error_of([] { cat(std::vector<Tensor>{}); }), "cat: no tensors; need one or more");
  EXPECT_NE(error_of([&] {
              cat({a, b}, 1);
            }).find("cat: shapes [1, 2] and [2, 2] differ outside dim 1"),
            std::string::npos);
}

TEST(View, Splitting) {
  const Tensor x = counting({7});
  const auto three = split(x, 3);
  ASSERT_EQ(three.size(), 3u);
  EXPECT_EQ(values(three[2]), (V{6}));
  EXPECT_EQ(values(split(x, std::vector<int64_t>{1, 4, 2})[1]), (V{1, 2, 3, 4}));
  EXPECT_EQ(chunk(x, 3)[0].numel(), 3);
  EXPECT_EQ(chunk(counting({4, 6}), 3, -1)[1].shape(), Shape({4, 2}));
  EXPECT_EQ(unbind(counting({3, 2}))[1].shape(), Shape({2}));
  EXPECT_NE(error_of([&] { split(x, std::vector<int64_t>{1, 4}); }).find("need a sum of 7"), std::string::npos);
}

TEST(View, PadTriangleRollFlip) {
  const Tensor x = counting({2, 3});
  EXPECT_EQ(values(pad(x, {1, 0})), (V{0, 0, 1, 2, 0, 3, 4, 5}));
  EXPECT_EQ(pad(x, {1, 1, 2, 0}).shape(), Shape({4, 5}));
  EXPECT_EQ(values(pad(x, {-1, 1}, 9)), (V{1, 2, 9, 4, 5, 9}));
  const Tensor m = counting({3, 3}) + 1.0;
  EXPECT_EQ(values(tril(m)), (V{1, 0, 0, 4, 5, 0, 7, 8, 9}));
  EXPECT_EQ(values(triu(m, 1)), (V{0, 2, 3, 0, 0, 6, 0, 0, 0}));
  EXPECT_EQ(tril(m.to(kInt64)).dtype(), kInt64);
  EXPECT_EQ(tril(ones({2, 2}, {.dtype = kBool})).dtype(), kBool);
  EXPECT_EQ(values(roll(counting({4}), 1, 0)), (V{3, 0, 1, 2}));
  EXPECT_EQ(values(roll(counting({4}), -5, 0)), (V{1, 2, 3, 0}));
  EXPECT_EQ(values(flip(counting({3}), 0)), (V{2, 1, 0}));
  EXPECT_EQ(values(repeat_interleave(counting({2}), 2, 0)), (V{0, 0, 1, 1}));
}

TEST(View, Derivatives) {
  testing::Random random(7);
  const Tensor x = testing::random_tensor(kFloat64, {4, 6}, random);
  const std::vector<std::pair<const char*, std::function<Tensor(const Tensor&)>>> fns = {
      {"slice", [](const Tensor& t) { return square(t.slice(1, 1, 6, 2)); }},
      {"pad",
       [](const Tensor& t) {
         return square(pad(t, {-1, 2, 1, 0}, 3));
       }},
      {"expand",
       [](const Tensor& t) {
         return square(t.unsqueeze(1).expand({2, 4, 3, 6}));
       }},
      {"cat",
       [](const Tensor& t) {
         return square(cat({t, t * 2.0, t[0].unsqueeze(0)}, 0));
       }},
      {"transposed reshape",
       [](const Tensor& t) {
         return square(t.t().reshape({3, 8}));
       }},
      {"flip", [](const Tensor& t) { return square(flip(t, 1)) * t; }},
      {"repeat", [](const Tensor& t) { return square(repeat_interleave(t, 3, 1)); }},
      {"contiguous", [](const Tensor& t) { return square(t.t().contiguous()); }},
  };
  for (const auto& [name, fn] : fns) {
    SCOPED_TRACE(name);
    const auto& f = fn;
    auto g = [&f](std::span<const Tensor> in) { return std::vector<Tensor>{f(in[0])}; };
    EXPECT_TRUE(testing::gradcheck(g, {x}));
    EXPECT_TRUE(testing::gradcheck(g, {x}, {.captured = true}));
    EXPECT_TRUE(testing::gradgradcheck(g, {x}));
  }
}

TEST(View, DimMaps) {
  auto map = [](const OpDef& op, const Attrs& attrs, const Shape& in) {
    const TensorType t{kFloat32, {}, in};
    const Types out = op.infer({op, attrs, {&t, 1}});
    return op.dims(attrs, {&t, 1}, out).to_string();
  };
  auto shape = [](const Shape& s) { return Attrs{{"shape", s}}; };
  EXPECT_EQ(map(reshape_op, shape({3, 8}), {6, 4}), "(a b) c -> a (b c)");
  EXPECT_EQ(map(reshape_op, shape({2, 12}), {2, 3, 4}), "a b c -> a (b c)");
  EXPECT_EQ(map(reshape_op, shape({2, 1, 6}), {2, 6, 1}), "a b 1 -> a 1 b");
  EXPECT_EQ(map(reshape_op, shape({6, 6, 5}), {4, 9, 5}), "(a b?) d? f -> (a c?) e? f");
  EXPECT_EQ(map(broadcast_op, shape({4, 2, 3}), {2, 1}), "b 1 -> a b c");
  EXPECT_EQ(map(permute_op, {{"dims", Shape{1, 2, 0}}}, {2, 3, 4}), "a b c -> b c a");
}

TEST(View, ExtremeIntegersAreErrorsOrRight) {
  const Tensor x = reshape(arange(9, {.dtype = kFloat32}), {3, 3});
  EXPECT_EQ(slice(x, 0, 0, 3, INT64_MAX).shape(), Shape({1, 3}));
  EXPECT_EQ(slice(x, 0, 1, 3, INT64_MAX).to_vector<float>(), (std::vector<float>{3, 4, 5}));
  EXPECT_EQ(slice(x, 0, INT64_MIN, INT64_MAX).shape(), Shape({3, 3}));
  EXPECT_EQ(pad(ones({1}), {1, 2}).shape(), Shape({4}));
  for (const std::vector<int64_t>& by : {std::vector<int64_t>{INT64_MAX, INT64_MAX},
                                         {INT64_MAX, 1},
                                         {INT64_MIN, 0},
                                         {INT64_MIN, INT64_MIN},
                                         {1, INT64_MAX - 4}})
    EXPECT_NE(error_of([&] { pad(ones({4}), by); }).find("pad: "), std::string::npos) << by[0] << " " << by[1];
  EXPECT_NE(error_of([&] { reshape(x, {INT64_MAX, INT64_MAX, 9}); }).find("too many"), std::string::npos);
  EXPECT_NE(error_of([&] { reshape(x, {INT64_MIN, -1}); }).find("reshape: "), std::string::npos);
  EXPECT_NE(error_of([&] {
              split(x, std::vector<int64_t>{INT64_MAX, INT64_MAX, 5});
            }).find("split: "),
            std::string::npos);
  EXPECT_EQ(split(x, INT64_MAX).size(), 1u);
  EXPECT_EQ(chunk(x, INT64_MAX).size(), 3u);
  EXPECT_NE(error_of([&] { repeat_interleave(x, INT64_MAX, 0); }).find("too many"), std::string::npos);
  EXPECT_EQ(sum(tril(x, INT64_MAX)).item<float>(), 36);
  EXPECT_EQ(sum(tril(x, INT64_MIN)).item<float>(), 0);
  EXPECT_EQ(sum(triu(x, INT64_MIN)).item<float>(), 36);
  EXPECT_EQ(sum(triu(x, int64_t{1} << 32)).item<float>(), 0);  // not diagonal 0
  EXPECT_EQ(roll(x, INT64_MIN, 0).shape(), x.shape());
  // A broadcast on meta that no memory could hold.
  const Tensor a = zeros({int64_t{1} << 40, 1}, {.device = Device::meta()});
  EXPECT_NE(error_of([&] { a + a.t(); }).find("too many"), std::string::npos);
}

}  // namespace
}  // namespace weft
