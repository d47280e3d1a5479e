#include "ops/core/products/dot.h"

#include <gtest/gtest.h>

#include "framework/autodiff/grad.h"
#include "framework/testing/gradcheck.h"
#include "ops/core/core.h"
#include "ops/core/products/dot_product.h"

namespace weft {
namespace {

using testing::error_of;
using testing::random_tensor;
using testing::Real;

Tensor random(const Shape& shape, uint64_t seed, DType t = kFloat64) {
  testing::Random r(seed);
  return random_tensor(t, shape, r);
}

// Integers, so that every order of summation gives the same value.
Tensor whole(const Shape& shape, uint64_t seed, DType t = kFloat64) {
  testing::Random r(seed);
  return random_tensor(kInt64, shape, r, -9, 9).to(t);
}

// Einstein summation by loops over all letters.
Tensor naive(const std::string& a_letters, const std::string& b_letters, const std::string& out_letters,
             const Tensor& a, const Tensor& b) {
  std::string letters;
  std::vector<int64_t> extents;
  auto learn = [&](const std::string& names, const Tensor& t) {
    for (size_t i = 0; i < names.size(); ++i)
      if (letters.find(names[i]) == std::string::npos)
        letters += names[i], extents.push_back(t.shape()[static_cast<int>(i)]);
  };
  learn(a_letters, a);
  learn(b_letters, b);
  Shape out;
  for (char c : out_letters) out.push_back(extents[letters.find(c)]);
  std::vector<double> r(out.numel()), av = a.to_vector<double>(), bv = b.to_vector<double>();
  std::vector<int64_t> at(letters.size());
  auto flat = [&](const std::string& names, const Shape& shape) {
    int64_t i = 0;
    for (size_t d = 0; d < names.size(); ++d) i = i * shape[static_cast<int>(d)] + at[letters.find(names[d])];
    return i;
  };
  for (bool more = !letters.empty(); more;) {
    r[flat(out_letters, out)] += av[flat(a_letters, a.shape())] * bv[flat(b_letters, b.shape())];
    more = false;
    for (size_t d = letters.size(); d-- > 0 && !more;) {
      more = ++at[d] < extents[d];
      if (!more) at[d] = 0;
    }
  }
  return Tensor::from_vector(r, out);
}

void expect_equal(const Tensor& got, const Tensor& want) {
  EXPECT_EQ(got.shape(), want.shape());
  EXPECT_EQ(got.to_vector<double>(), want.to_vector<double>());
}

TEST(DotRows, DistanceAndPadding) {
  using internal::padded_distance;
  using internal::row_distance;
  using internal::strides_of_rows;
  const auto distance = [](const Shape& shape, const Shape& strides, int64_t columns) {
    return row_distance({nullptr, kFloat32, shape, strides}, columns).value_or(-1);
  };
  EXPECT_EQ(distance({4, 6}, {6, 1}, 6), 6);
  EXPECT_EQ(distance({4, 6}, {6, 1}, 8), 8);  // contiguous: any rows
  EXPECT_EQ(distance({4, 6}, {8, 1}, 6), 8);
  EXPECT_EQ(distance({2, 4, 6}, {32, 8, 1}, 6), 8);
  EXPECT_EQ(distance({2, 4, 6}, {40, 8, 1}, 6), -1);
  EXPECT_EQ(distance({2, 1, 3, 2}, {8, 99, 2, 1}, 6), 8);
  EXPECT_EQ(distance({4, 6}, {8, 1}, 3), -1);  // a row ends inside a dim
  EXPECT_EQ(distance({4, 6}, {1, 4}, 6), -1);
  EXPECT_EQ(distance({4, 6}, {3, 1}, 6), -1);
  EXPECT_EQ(*strides_of_rows({2, 4, 3, 2}, 6, 8), (Shape{32, 8, 2, 1}));
  EXPECT_FALSE(strides_of_rows({4, 8}, 4, 5));
  EXPECT_EQ(padded_distance(50257, 2, 16), 50304);  // 786 lines of 128 bytes
  EXPECT_EQ(padded_distance(50256, 2, 16), 50256);
  EXPECT_EQ(padded_distance(77, 2, 16), 80);
  EXPECT_EQ(padded_distance(9, 2, 16), 9);  // 16 would be almost twice as much
}

TEST(Matmul, RankRules) {
  const Tensor v3 = whole({3}, 1), v4 = whole({4}, 2), m34 = whole({3, 4}, 3), m45 = whole({4, 5}, 4),
               b234 = whole({2, 3, 4}, 5), b245 = whole({2, 4, 5}, 6), b2134 = whole({2, 1, 3, 4}, 7),
               b645 = whole({6, 4, 5}, 8), b145 = whole({1, 4, 5}, 9);
  expect_equal(matmul(v4, v4), naive("a", "a", "", v4, v4));
  expect_equal(matmul(m34, v4), naive("ab", "b", "a", m34, v4));
  expect_equal(matmul(v3, m34), naive("a", "ab", "b", v3, m34));
  expect_equal(matmul(m34, m45), naive("ab", "bc", "ac", m34, m45));
  expect_equal(matmul(b234, m45), naive("xab", "bc", "xac", b234, m45));
  expect_equal(matmul(b234, v4), naive("xab", "b", "xa", b234, v4));
  expect_equal(matmul(v4, b245), naive("a", "xab", "xb", v4, b245));
  expect_equal(matmul(m34, b245), naive("ab", "xbc", "xac", m34, b245));
  expect_equal(matmul(b234, b245), naive("xab", "xbc", "xac", b234, b245));
  expect_equal(matmul(b2134, b645), naive("xab", "ybc", "xyac", b2134.squeeze(1), b645));
  expect_equal(matmul(b234, b145), naive("xab", "bc", "xac", b234, b145.squeeze(0)));
  expect_equal(matmul(m34, b145), naive("ab", "xbc", "xac", m34, b145));
  expect_equal(bmm(b234, b245), matmul(b234, b245));
  expect_equal(mm(m34, m45), matmul(m34, m45));
}

TEST(Matmul, StridedOperands) {
  const Tensor x = whole({5, 3, 2, 4}, 1, kFloat32), w = whole({5, 4, 2, 7}, 2, kFloat32);
  const Tensor xt = x.permute({0, 2, 1, 3}), wt = w.permute({0, 2, 1, 3});  // batch dims that cannot be merged
  expect_equal(matmul(xt, wt), matmul(xt.contiguous(), wt.contiguous()));
  expect_equal(matmul(x.slice(3, 0, 4, 2), w[0][0].slice(1, 1, 6).expand({2, 5})),
               matmul(x.slice(3, 0, 4, 2).contiguous(), w[0][0].slice(1, 1, 6).expand({2, 5}).contiguous()));
}

TEST(Matmul, Dtypes) {
  const Tensor a = ones({2, 3}), b = ones({3, 2});
  EXPECT_EQ(matmul(a, b.to(kFloat64)).dtype(), kFloat64);
  EXPECT_EQ(matmul(a.to(kBFloat16), b.to(kFloat16)).dtype(), kFloat32);
  EXPECT_EQ(matmul(a.to(kInt32), b.to(kInt32)).to_vector<int32_t>(), std::vector<int32_t>(4, 3));
  EXPECT_EQ(dot_general(a.to(kBFloat16), b.to(kBFloat16), {{}, {}, {1}, {0}}, kFloat32).dtype(), kFloat32);
}

TEST(Matmul, Errors) {
  EXPECT_EQ(error_of([] {
              matmul(ones({4, 8}), ones({9, 2}));
            }),
            "matmul: inner dimensions differ: [4, 8] x [9, 2] (8 != 9); need equal ones");
  EXPECT_EQ(error_of([] { matmul(ones({4}), ones({5})); }),
            "matmul: inner dimensions differ: [4] x [5] (4 != 5); need equal ones");
  EXPECT_NE(error_of([] {
              matmul(ones({2, 3, 4}), ones({3, 4, 5}));
            }).find("matmul: shapes [2] and [3] do not broadcast"),
            std::string::npos);
  EXPECT_NE(error_of([] { matmul(ones({}), ones({2})); }).find("matmul: got [] x [2]; need one dim or more"),
            std::string::npos);
  EXPECT_EQ(error_of([] { matmul(2.0, ones({2})); }), "matmul: an operand is a number; need a tensor");
  EXPECT_EQ(error_of([] {
              mm(ones({2, 3, 4}), ones({4, 2}));
            }),
            "mm: got [2, 3, 4] x [4, 2]; need two tensors of 2 dims");
  EXPECT_EQ(error_of([] {
              linear(ones({2, 3}), ones({4, 5}));
            }),
            "linear: input [2, 3] does not fit weight [4, 5]; need [..., in] and [out, in]");
}

TEST(Linear, CastsWeightsToTheInput) {
  const Tensor x = whole({2, 3, 4}, 1), w = whole({5, 4}, 2), b = whole({5}, 3);
  expect_equal(linear(x, w, b), naive("xab", "cb", "xac", x, w) + b);
  EXPECT_EQ(linear(x.to(kBFloat16), w.to(kFloat32), b.to(kFloat32)).dtype(), kBFloat16);
}

TEST(Einsum, AgainstLoops) {
  for (const auto& [a, b, out] :
       std::vector<std::tuple<std::string, std::string, std::string>>{{"bhqd", "bhkd", "bhqk"},
                                                                      {"ab", "bc", "ca"},
                                                                      {"ab", "cb", "abc"},
                                                                      {"abc", "cd", "d"},
                                                                      {"a", "b", "ba"},
                                                                      {"abc", "cba", ""},
                                                                      {"xay", "yxb", "bxa"},
                                                                      {"ab", "ab", "ab"},
                                                                      {"abc", "ad", "acd"}}) {
    auto extent = [](char c) -> int64_t { return 2 + c % 4; };
    Shape sa, sb;
    for (char c : a) sa.push_back(extent(c));
    for (char c : b) sb.push_back(extent(c));
    const Tensor x = whole(sa, 1), y = whole(sb, 2);
    SCOPED_TRACE(a + "," + b + "->" + out);
    expect_equal(einsum(a + "," + b + "->" + out, x, y), naive(a, b, out, x, y));
  }
  const Tensor m = whole({3, 4}, 5), n = whole({4, 2}, 6), o = whole({2, 5}, 7);
  expect_equal(einsum("ab->ba", {m}), m.t());
  expect_equal(einsum("ab->", {m}), sum(m));
  expect_equal(einsum("ab, bc, cd -> ad", {m, n, o}), matmul(matmul(m, n), o));
  expect_equal(einsum("ab,bc", m, n), matmul(m, n));
  EXPECT_NE(error_of([&] { einsum("aa->a", {m}); }).find("'a' of 'aa->a' is 3 and 4"), std::string::npos);
  EXPECT_NE(error_of([&] { einsum("a.b->a", {m}); }).find("has '.'; need letters, '...' once"), std::string::npos);
  EXPECT_NE(error_of([&] { einsum("......->", {m}); }).find("has '.'"), std::string::npos);
  EXPECT_NE(error_of([&] { einsum("ab->a->b", {m}); }).find("has '-'"), std::string::npos);
  EXPECT_NE(error_of([&] { einsum("abc...->a", {m}); }).find("needs 3 dims or more"), std::string::npos);
  EXPECT_NE(
      error_of([&] { einsum("ab,bc->ac", m, m); }).find("einsum: 'b' of 'ab,bc->ac' is 4 and 3; need equal extents"),
      std::string::npos);
  EXPECT_NE(error_of([&] { einsum("ab->az", {m}); }).find("has 'z' in its result"), std::string::npos);
}

TEST(Einsum, EllipsisDiagonalsAndBroadcasting) {
  const Tensor x = whole({2, 3, 4, 5}, 1), y = whole({5, 6}, 2), v = whole({5}, 3), square = whole({2, 4, 4}, 4);
  expect_equal(einsum("...i,i->...", x, v), matmul(x, v));
  expect_equal(einsum("...i,ij", x, y), matmul(x, y));
  expect_equal(einsum("...ij->...ji", {x}), transpose(x, -1, -2));
  expect_equal(einsum("a...->...a", {x}), permute(x, {1, 2, 3, 0}));
  expect_equal(einsum("...,...->...", x, whole({4, 5}, 5)), x * whole({4, 5}, 5));
  expect_equal(einsum("a...,a...->a...", x, whole({2, 1, 1, 5}, 6)), x * whole({2, 1, 1, 5}, 6));
  expect_equal(einsum("ab,ab->a", whole({3, 1}, 7), whole({3, 4}, 8)), sum(whole({3, 1}, 7) * whole({3, 4}, 8), {1}));
  expect_equal(einsum("...->", {x}), sum(x));
  std::vector<double> want;
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t i = 0; i < 4; ++i) want.push_back(square[b][i][i].item<double>());
  expect_equal(einsum("bii->bi", {square}), Tensor::from_vector(want, {2, 4}));
  expect_equal(einsum("bii->b", {square}), sum(Tensor::from_vector(want, {2, 4}), {1}));
  expect_equal(einsum("ii", {square[0]}), einsum("ii->", {square[0]}));
}

TEST(GroupedMatmul, RaggedRows) {
  const Tensor x = whole({7, 3}, 1), w = whole({4, 3, 2}, 2);
  const Tensor offsets = Tensor::from_vector<int64_t>({0, 2, 2, 5, 6}, {5});  // one empty group, one row outside all
  const Tensor y = grouped_matmul(x, w, offsets);
  expect_equal(y.slice(0, 0, 2), matmul(x.slice(0, 0, 2), w[0]));
  expect_equal(y.slice(0, 2, 5), matmul(x.slice(0, 2, 5), w[2]));
  expect_equal(y.slice(0, 5, 6), matmul(x.slice(0, 5, 6), w[3]));
  expect_equal(y[6], zeros({2}, {.dtype = kFloat64}));
  EXPECT_NE(error_of([&] { grouped_matmul(x, w, Tensor::from_vector<int64_t>({0, 5, 2, 6, 7}, {5})); }), "");
  auto fn = [&](std::span<const Tensor> in) {
    return std::vector<Tensor>{square(grouped_matmul(in[0], in[1], offsets))};
  };
  const Tensor a = random({7, 3}, 3), b = random({4, 3, 2}, 4);
  EXPECT_TRUE(testing::gradcheck(fn, {a, b}));
  EXPECT_TRUE(testing::gradcheck(fn, {a, b}, {.captured = true}));
  EXPECT_TRUE(testing::gradgradcheck(fn, {a, b}));
}

TEST(Dot, Derivatives) {
  using Fn = std::function<Tensor(const Tensor&, const Tensor&)>;
  const std::vector<std::tuple<const char*, Shape, Shape, Fn>> cases = {
      {"matrix", {3, 4}, {4, 2}, [](auto& a, auto& b) { return matmul(a, b); }},
      {"folded", {2, 3, 4}, {4, 2}, [](auto& a, auto& b) { return matmul(a, b); }},
      {"broadcast batch", {2, 1, 3, 4}, {5, 4, 2}, [](auto& a, auto& b) { return matmul(a, b); }},
      {"linear", {2, 3, 4}, {5, 4}, [](auto& a, auto& b) { return linear(a, b); }},
      {"scores", {2, 3, 2, 4}, {2, 5, 2, 4}, [](auto& a, auto& b) { return einsum("bqhd,bkhd->bhqk", a, b); }},
      {"two contracted, crossed", {3, 2, 4}, {4, 5, 3}, [](auto& a, auto& b) { return einsum("abc,cda->bd", a, b); }},
      {"vector", {4}, {4}, [](auto& a, auto& b) { return matmul(a, b); }},
      {"outer", {4}, {3}, [](auto& a, auto& b) { return einsum("a,b->ab", a, b); }},
  };
  for (const auto& [name, sa, sb, fn] : cases) {
    SCOPED_TRACE(name);
    const Fn& f = fn;
    auto g = [&f](std::span<const Tensor> in) { return std::vector<Tensor>{square(f(in[0], in[1]))}; };
    const std::vector<Tensor> in = {random(sa, 1), random(sb, 2)};
    EXPECT_TRUE(testing::gradcheck(g, in));
    EXPECT_TRUE(testing::gradcheck(g, in, {.captured = true}));
    EXPECT_TRUE(testing::gradgradcheck(g, in));
  }
}

TEST(Dot, GradientsNeedNoTransposition) {
  // Gradients of x w and of x w^T have the layout of their operands: row-major memory without a copy.
  for (bool transposed : {false, true}) {
    const Tensor x = random({6, 4}, 1).requires_grad(),
                 w = random(transposed ? Shape{5, 4} : Shape{4, 5}, 2).requires_grad();
    for (const Tensor& g : grad(sum(transposed ? linear(x, w) : matmul(x, w)), {x, w})) EXPECT_TRUE(g.is_contiguous());
  }
}

TEST(Dot, DimMap) {
  const TensorType a{kFloat32, {}, {2, 3, 4}}, b{kFloat32, {}, {2, 5, 4}};
  const std::vector<TensorType> in = {a, b};
  const Attrs attrs{{"a_batch", Shape{0}}, {"b_batch", Shape{0}}, {"a_contract", Shape{2}}, {"b_contract", Shape{2}}};
  const Types out = dot_op.infer({dot_op, attrs, in});
  EXPECT_EQ(dot_op.dims(attrs, in, out).to_string(), "b0 m0 k0, b0 n0 k0 -> b0 m0 n0");
  EXPECT_EQ(op_cost(dot_op, attrs, in, out).flops, 2.0 * 2 * 3 * 4 * 5);
}

}  // namespace
}  // namespace weft
