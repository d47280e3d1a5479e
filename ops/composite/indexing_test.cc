#include "ops/composite/indexing.h"

#include "compiler/exec/compile.h"
#include "framework/autodiff/grad.h"
#include "framework/testing/gradcheck.h"
#include "ops/composite/testing/composite_table.h"
#include "ops/core/core.h"

namespace weft::testing {
namespace {

using I = std::vector<int64_t>;
using Args = std::span<const Tensor>;

Tensor ints(const I& v, const Shape& shape) { return Tensor::from_vector(v, shape); }
Tensor ints(const I& v) { return ints(v, static_cast<int64_t>(v.size())); }
Tensor counting(const Shape& shape) { return reshape(arange(shape.numel()), shape); }
Tensor bools(const std::vector<bool>& v, const Shape& shape) { return Tensor::from_vector(v, shape); }
I values(const Tensor& x) { return x.to_vector<int64_t>(); }

auto order(const I& o) {
  return [o](const std::vector<Reals>& in) {
    Reals r;
    for (int64_t i : o) r.push_back(in[0][static_cast<size_t>(i)]);
    return r;
  };
}
// The operand with these elements replaced by the second operand's elements.
auto replaced(const I& to) {
  return [to](const std::vector<Reals>& in) {
    Reals r = in[0];
    for (size_t i = 0; i < to.size(); ++i) r[static_cast<size_t>(to[i])] = in[1][i % in[1].size()];
    return r;
  };
}

const Operand kX{Shape{3, 4}}, kIndex{Shape{2}, kInt64, 1, 1}, kV{Shape{2}};
const std::vector<CompositeRow> kTable = {
    {"slices",
     {kX},
     [](Args a) {
       return index(a[0], {Slice(1, None), Slice(None, None, 2)});
     },
     order({4, 6, 8, 10})},
    {"rows",
     {kX},
     [](Args a) {
       return index(a[0], {ints({-1, 0, -1})});
     },
     order({8, 9, 10, 11, 0, 1, 2, 3, 8, 9, 10, 11})},
    {"columns",
     {kX},
     [](Args a) {
       return index(a[0], {Ellipsis, ints({3, 0})});
     },
     order({3, 0, 7, 4, 11, 8})},
    {"pairs",
     {kX},
     [](Args a) {
       return index(a[0], {ints({0, 2}), ints({-1, 1})});
     },
     order({3, 9})},
    {"put",
     {kX, kV},
     [](Args a) {
       return index_put(a[0], {ints({2, 0}), ints({1, 3})}, a[1]);
     },
     replaced({9, 3})},
    {"put_slice",
     {kX, kV},
     [](Args a) {
       return index_put(a[0], {1, Slice(None, None, 2)}, a[1]);
     },
     replaced({4, 6})},
};
WEFT_TEST_COMPOSITES(Indexing, kTable);

TEST(Indexing, PositionsSlicesNoneAndEllipsis) {
  const Tensor x = counting({2, 3, 4});
  EXPECT_EQ(values(index(x, {1, 2, 3})), (I{23}));
  EXPECT_EQ(index(x, {1, 2, 3}).dim(), 0);
  EXPECT_EQ(values(index(x, {Slice(), 0})), (I{0, 1, 2, 3, 12, 13, 14, 15}));
  EXPECT_EQ(values(index(x, {Ellipsis, -1})), (I{3, 7, 11, 15, 19, 23}));
  EXPECT_EQ(values(index(x, {0, Ellipsis, Slice(1, 3)})), (I{1, 2, 5, 6, 9, 10}));
  EXPECT_EQ(index(x, {None, Slice(), None, 0}).shape(), Shape({1, 2, 1, 4}));
  EXPECT_EQ(index(x, {Ellipsis, None}).shape(), Shape({2, 3, 4, 1}));
  EXPECT_EQ(index(x, {}).shape(), x.shape());
  EXPECT_EQ(index(x, {Slice(-1, None), Slice(5, 9)}).shape(), Shape({1, 0, 4}));
  EXPECT_EQ(index(counting({}), {Ellipsis}).dim(), 0);
}

// The places of results are the same as in NumPy.
TEST(Indexing, Tensors) {
  const Tensor x = counting({2, 3, 4}), a = ints({0, 1, 1}), b = ints({2, 0, 1});
  EXPECT_EQ(index(x, {a}).shape(), Shape({3, 3, 4}));
  EXPECT_EQ(values(index(x, {a, b, -1})), (I{11, 15, 19}));
  EXPECT_EQ(index(x, {Slice(), b}).shape(), Shape({2, 3, 4}));
  EXPECT_EQ(index(x, {Slice(), b, ints({1, 1, 0})}).shape(), Shape({2, 3}));
  EXPECT_EQ(values(index(x, {Slice(), b, ints({1, 1, 0})})), (I{9, 1, 4, 21, 13, 16}));
  EXPECT_EQ(index(x, {a, Slice(1, 3), b}).shape(), Shape({3, 2}));  // not neighbours: in front
  EXPECT_EQ(values(index(x, {a, Slice(1, 3), b})), (I{6, 10, 16, 20, 17, 21}));
  EXPECT_EQ(index(x, {ints({0, 1}, {2, 1}), b}).shape(), Shape({2, 3, 4}));
  EXPECT_EQ(values(index(x, {ints({1}, {}), ints({-1}, {}), 0})), (I{20}));
  EXPECT_EQ(index(x, {ints({1}, {})}).shape(), Shape({3, 4}));
  EXPECT_EQ(index(x, {cast(a, kInt32)}).shape(), Shape({3, 3, 4}));
  EXPECT_EQ(index(x, {ints({})}).shape(), Shape({0, 3, 4}));
}

TEST(Indexing, Masks) {
  const Tensor x = counting({2, 3}), m = bools({true, false, true, false, false, true}, {2, 3});
  EXPECT_EQ(values(x[m]), (I{0, 2, 5}));
  EXPECT_EQ(values(x[x > 3]), (I{4, 5}));
  EXPECT_EQ(values(x[bools({false, true}, {2})]), (I{3, 4, 5}));
  EXPECT_EQ(x[x < 0].shape(), Shape({0}));
  EXPECT_EQ(x[bools({true}, {})].shape(), Shape({1, 2, 3}));
  EXPECT_EQ(x[bools({false}, {})].shape(), Shape({0, 2, 3}));
  EXPECT_EQ(values(index(x, {m})), (I{0, 2, 5}));
  EXPECT_EQ(values(index(x, {Slice(), bools({true, false, true}, {3})})), (I{0, 2, 3, 5}));
  EXPECT_EQ(values(index(x, {bools({false, true}, {2}), ints({2, 0})})), (I{5, 3}));
  EXPECT_EQ(index(x, {bools({true}, {}), 1}).shape(), Shape({1, 3}));
  EXPECT_EQ(values(masked_select(x, m)), (I{0, 2, 5}));
  EXPECT_EQ(values(masked_select(x, bools({true, false}, {2, 1}))), (I{0, 1, 2}));
  EXPECT_EQ(values(masked_select(ints({7, 8, 9}), m)), (I{7, 9, 9}));
  // x [2, 1, 2] and the mask [2, 2] give [2, 2, 2].
  EXPECT_EQ(values(masked_select(counting({2, 1, 2}), bools({true, false, true, true}, {2, 2}))),
            (I{0, 0, 1, 2, 2, 3}));
  EXPECT_EQ(values(nonzero(ints({0, 3, 0, -1, 0, 2}, {2, 3}))), (I{0, 1, 1, 0, 1, 2}));
  EXPECT_EQ(nonzero(ints({5}, {})).shape(), Shape({1, 0}));
  EXPECT_EQ(nonzero(zeros({2, 2})).shape(), Shape({0, 2}));
}

TEST(Indexing, GradientOfAMask) {
  const Tensor x = cast(counting({4}), kFloat64).requires_grad(), m = bools({true, false, true, false}, {4});
  EXPECT_EQ(grad(sum(square(x[m])), {x})[0].to_vector<double>(), (std::vector<double>{0, 0, 4, 0}));
}

TEST(Indexing, MasksInCompiledFunctions) {
  const Tensor x = counting({4}), m = bools({true, false, true, false}, {4});
  const std::string text = error_of([&] { compile([](Tensor a) { return a[a > 1]; })(x); });
  EXPECT_EQ(text,
            "operator[]: the shape of the result depends on the values of bool[4], which do not exist yet inside a "
            "compiled function; need where(mask, x, 0), which keeps x's shape, or the call outside compiled functions");
  expect_error([&] { compile([](Tensor a) { return nonzero(a); })(x); }, "nonzero: the shape of the result depends");
  expect_error([&] { compile([](Tensor a) { return index(a, {a > 1}); })(x); }, "index: the shape of the result");
  EXPECT_EQ(values(compile([&](Tensor a) { return a[m]; })(x)), (I{0, 2}));  // a mask that has values
  EXPECT_EQ(values(compile([](Tensor a) { return index_put(a, {a > 1}, -7); })(x)), (I{0, 1, -7, -7}));
}

TEST(Indexing, Puts) {
  const Tensor x = counting({2, 3}), m = bools({true, false, true, false, false, true}, {2, 3});
  EXPECT_EQ(values(index_put(x, {m}, -1)), (I{-1, 1, -1, 3, 4, -1}));
  EXPECT_EQ(values(index_put(x, {m}, 10, true)), (I{10, 1, 12, 3, 4, 15}));
  EXPECT_EQ(values(index_put(x, {m}, ints({7, 8, 9}))), (I{7, 1, 8, 3, 4, 9}));
  EXPECT_EQ(values(index_put(x, {bools({false, true}, {2})}, 0)), (I{0, 1, 2, 0, 0, 0}));
  EXPECT_EQ(values(index_put(x, {ints({1, 1})}, ints({7, 8, 9}))), (I{0, 1, 2, 7, 8, 9}));
  EXPECT_EQ(values(index_put(x, {ints({1, 1}), ints({0, 0})}, ints({5, 6}))), (I{0, 1, 2, 6, 4, 5}));
  EXPECT_EQ(values(index_put(x, {ints({1, 1}), ints({0, 0})}, ints({5, 6}), true)), (I{0, 1, 2, 14, 4, 5}));
  EXPECT_EQ(values(index_put(x, {Slice(), -1}, 0)), (I{0, 1, 0, 3, 4, 0}));
  EXPECT_EQ(values(index_put(x, {Slice(3, 5)}, 0)), values(x));
  EXPECT_EQ(values(x), (I{0, 1, 2, 3, 4, 5}));
}

TEST(Indexing, TensorsOfPositionsCountFromTheEnd) {
  const Tensor x = counting({3, 2});
  const auto f = [](Tensor x, Tensor i) { return std::vector<Tensor>{x[i], x[i[1]], x(i[1]), x(i[1], i[0])}; };
  for (DType t : {kInt64, kInt32}) {
    const std::vector<Tensor> eager = f(x, ints({1, -1}).to(t)), compiled = compile(f)(x, ints({1, -1}).to(t));
    for (const std::vector<Tensor>& r : {eager, compiled}) {
      EXPECT_EQ(values(r[0]), (I{2, 3, 4, 5}));
      EXPECT_EQ(values(r[1]), (I{4, 5}));
      EXPECT_EQ(values(r[2]), (I{4, 5}));
      EXPECT_EQ(r[3].item<int64_t>(), 5);
    }
  }
  EXPECT_EQ(values(x[ints({0, 1, -1, 2}).slice(0, 0, 4, 2)]), (I{0, 1, 4, 5}));  // not contiguous
  EXPECT_EQ(values(vmap([](Tensor a) { return a[ints({-1})]; })(x)), (I{1, 3, 5}));
  for (int64_t bad : {int64_t{3}, int64_t{-4}, INT64_MIN}) {
    const auto read = [](Tensor x, Tensor i) { return x[i]; };
    const std::string text = str_cat("index_select: index ", bad, " at position 0 is out of range; need 0 to 2");
    EXPECT_EQ(error_of([&] { read(x, ints({bad})); }), text);
    EXPECT_EQ(error_of([&] { compile(read)(x, ints({bad})); }), text);
  }
  EXPECT_EQ(error_of([&] { x(0, 1, 2); }), "x(i, j): x has 2 dims, got 3 indices; need at most one index for each dim");
}

TEST(Indexing, Errors) {
  const Tensor x = counting({2, 3});
  EXPECT_EQ(error_of([&] {
              index(x, {0, 0, 0});
            }),
            "index: indices of 3 dims for [2, 3]; need at most 2 and one Ellipsis");
  EXPECT_EQ(error_of([&] {
              index(x, {Ellipsis, Ellipsis});
            }),
            "index: indices of 0 dims, two Ellipsis, for [2, 3]; need at most 2 and one Ellipsis");
  EXPECT_EQ(error_of([&] { index(x, {0, 3}); }), "select: index 3 is out of range for dim 0 of [3]; need -3 to 2");
  EXPECT_EQ(error_of([&] {
              index(x, {ints({0, 2}), ints({0, 0})});
            }),
            "index: an index is not a position: index_select: index 2 at position 1 is out of range; need 0 to 1");
  for (int64_t bad : {int64_t{2}, int64_t{-3}, INT64_MIN})
    for (const bool put : {false, true}) {
      const auto f = [=](Tensor a, Tensor i) { return put ? index_put(a, {i}, 5) : index(a, {i}); };
      const std::string text =
          str_cat(put ? "index_put" : "index", ": an index is not a position: index_select: index ", bad,
                  " at position 0 is out of range; need 0 to 1");
      EXPECT_EQ(error_of([&] { f(x, ints({bad})); }), text);
      EXPECT_EQ(error_of([&] { compile(f)(x, ints({bad})); }), text);
    }
  EXPECT_THROW(index(x, {Slice(0, 2, 0)}), Error);
  EXPECT_EQ(error_of([&] { index(x, {ones(2)}); }), "index: index is f32[2]; need integers");
  EXPECT_EQ(error_of([&] { index(x, {Tensor()}); }),
            "index: an index is an undefined tensor; need Slice() for a whole dim");
  EXPECT_EQ(error_of([&] {
              index(x, {bools({true, false}, {2}), Slice(), 0});
            }),
            "index: indices of 3 dims for [2, 3]; need at most 2 and one Ellipsis");
  EXPECT_EQ(error_of([&] { index(x, {bools({true}, {1})}); }),
            "index: a mask has shape [1] for dims 0 to 0 of [2, 3]; need equal extents");
  EXPECT_EQ(error_of([&] { x[bools({true}, {1})]; }),
            "operator[]: the mask has shape [1] and the tensor [2, 3]; need a mask of the tensor's first dims");
  EXPECT_EQ(error_of([&] { index_put(x, {0}, ones(3)); }),
            "index_put: x and the values are i64 and f32; need one dtype");
  EXPECT_EQ(error_of([&] { index_put(x, {0}, 0.5); }),
            "index_put: the value is 0.5 and x is i64[2, 3]; need an integer, or x.to(f32)");
  EXPECT_THROW(index_put(x, {0}, ints({1, 2})), Error);
  EXPECT_EQ(error_of([&] { masked_select(x, x); }), "masked_select: the mask is i64[2, 3]; need bool");
}

}  // namespace
}  // namespace weft::testing
