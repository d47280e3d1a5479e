#include "ops/composite/math/matrix.h"

#include <cmath>

#include "framework/autodiff/grad.h"
#include "ops/composite/testing/composite_table.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"

namespace weft::testing {
namespace {

using Args = std::span<const Tensor>;
using Refs = const std::vector<Reals>&;

// [n, k] x [k, m].
Reals product(const Reals& a, const Reals& b, int n, int k, int m, Real alpha = 1) {
  Reals y(n * m, 0);
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < m; ++j)
      for (int l = 0; l < k; ++l) y[i * m + j] += alpha * a[i * k + l] * b[l * m + j];
  return y;
}
Reals plus(Reals a, const Reals& b, Real beta) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += beta * b[i % b.size()];
  return a;
}

const std::vector<CompositeRow> kTable = {
    {"diagonal",
     {{Shape{3, 2, 4}}},
     [](Args a) { return diagonal(a[0], 1, 0, 2); },
     [](Refs in) {
       Reals y;
       for (int b = 0; b < 2; ++b)
         for (int i = 0; i < 3; ++i) y.push_back(in[0][i * 8 + b * 4 + i + 1]);
       return y;
     }},
    {"diag_embed",
     {{Shape{2, 3}}},
     [](Args a) { return diag_embed(a[0], -1); },
     [](Refs in) {
       Reals y(32, 0);
       for (int b = 0; b < 2; ++b)
         for (int i = 0; i < 3; ++i) y[b * 16 + (i + 1) * 4 + i] = in[0][b * 3 + i];
       return y;
     }},
    {"trace",
     {{Shape{3, 4}}},
     [](Args a) { return trace(a[0]); },
     [](Refs in) { return Reals{in[0][0] + in[0][5] + in[0][10]}; }},
    {"dot",
     {{Shape{9}}, {Shape{9}}},
     [](Args a) { return dot(a[0], a[1]); },
     [](Refs in) { return product(in[0], in[1], 1, 9, 1); },
     16,
     true,
     false,
     16},
    {"vdot",
     {{Shape{9}}, {Shape{9}}},
     [](Args a) { return vdot(a[0], a[1]); },
     [](Refs in) { return product(in[0], in[1], 1, 9, 1); },
     16,
     true,
     false,
     16},
    {"outer",
     {{Shape{3}}, {Shape{4}}},
     [](Args a) { return outer(a[0], a[1]); },
     [](Refs in) { return product(in[0], in[1], 3, 1, 4); }},
    {"mv",
     {{Shape{3, 4}}, {Shape{4}}},
     [](Args a) { return mv(a[0], a[1]); },
     [](Refs in) { return product(in[0], in[1], 3, 4, 1); }},
    {"inner",
     {{Shape{3, 4}}, {Shape{4}}},
     [](Args a) { return inner(a[0], a[1]); },
     [](Refs in) { return product(in[0], in[1], 3, 4, 1); }},
    {"tensordot",
     {{Shape{2, 3, 4}}, {Shape{3, 4, 5}}},
     [](Args a) { return tensordot(a[0], a[1]); },
     [](Refs in) { return product(in[0], in[1], 2, 12, 5); }},
    {"tensordot_lists",
     {{Shape{2, 4}}, {Shape{5, 4}}},
     [](Args a) { return tensordot(a[0], transpose(a[1], 0, 1), {-1}, {0}); },
     [](Refs in) {
       Reals b(20);
       for (int i = 0; i < 20; ++i) b[i % 4 * 5 + i / 4] = in[1][i];
       return product(in[0], b, 2, 4, 5);
     }},
    {"cross",
     {{Shape{2, 3}}, {Shape{2, 3}}},
     [](Args a) { return cross(a[0], a[1]); },
     [](Refs in) {
       Reals y;
       for (int i = 0; i < 6; i += 3) {
         const Real *a = &in[0][i], *b = &in[1][i];
         for (int k = 0; k < 3; ++k) y.push_back(a[(k + 1) % 3] * b[(k + 2) % 3] - a[(k + 2) % 3] * b[(k + 1) % 3]);
       }
       return y;
     }},
    {"kron",
     {{Shape{2, 3}}, {Shape{2}}},
     [](Args a) { return kron(a[0], a[1]); },
     [](Refs in) {
       Reals y;
       for (int i = 0; i < 12; ++i) y.push_back(in[0][i / 2] * in[1][i % 2]);
       return y;
     }},
    {"addmm",
     {{Shape{4}}, {Shape{2, 3}}, {Shape{3, 4}}},
     [](Args a) { return addmm(a[0], a[1], a[2], 0.5, 2); },
     [](Refs in) { return plus(product(in[1], in[2], 2, 3, 4, 2), in[0], 0.5); }},
    {"baddbmm",
     {{Shape{1, 2, 4}}, {Shape{1, 2, 3}}, {Shape{1, 3, 4}}},
     [](Args a) { return baddbmm(a[0], a[1], a[2]); },
     [](Refs in) { return plus(product(in[1], in[2], 2, 3, 4), in[0], 1); }},
    {"addmv",
     {{Shape{2}}, {Shape{2, 3}}, {Shape{3}}},
     [](Args a) { return addmv(a[0], a[1], a[2], 1, 0.5); },
     [](Refs in) { return plus(product(in[1], in[2], 2, 3, 1, 0.5), in[0], 1); }},
};
WEFT_TEST_COMPOSITES(Matrix, kTable);

TEST(Matrix, DiagonalsOfEveryOffsetAreInverse) {
  const Tensor x = arange(12, {.dtype = kFloat64}).reshape({3, 4});
  expect_values(diagonal(x), {0, 5, 10});
  expect_values(diagonal(x, 3), {3});
  expect_values(diagonal(x, -2), {8});
  expect_values(diagonal(x.t(), 1), {4, 9});
  for (int64_t offset : {int64_t{4}, int64_t{-3}, int64_t{99}, INT64_MIN, INT64_MAX})
    EXPECT_EQ(diagonal(x, offset).shape(), (Shape{0})) << offset;
  EXPECT_EQ(diagonal(zeros({0, 3, 2})).shape(), (Shape{2, 0}));
  EXPECT_EQ(diagonal(zeros({3, 3, 0})).shape(), (Shape{0, 3}));
  const Tensor v = arange(1, 4, {.dtype = kInt64});
  for (int64_t offset : {-2, 0, 1}) {
    EXPECT_EQ(diag(v, offset).shape(), (Shape{3 + std::abs(offset), 3 + std::abs(offset)}));
    EXPECT_TRUE(same_bits(diag(diag(v, offset), offset), v));
  }
  EXPECT_TRUE(same_bits(diagonal(diag_embed(x, 1, 0, 2), 1, 0, 2), x));
  EXPECT_EQ(diag_embed(zeros({2, 0})).shape(), (Shape{2, 0, 0}));
  expect_values(diag(Tensor::from_vector<bool>({true, true}, {2})), {1, 0, 0, 1});
}

TEST(Matrix, IntegersScalarsAndEmptyOperands) {
  const Tensor m = arange(4).reshape({2, 2}), nan = full({2, 2}, std::nan(""));
  EXPECT_EQ(addmm(m, m, m, 2, 3).to_vector<int64_t>(), (std::vector<int64_t>{6, 11, 22, 39}));
  expect_values(addmm(full({2, 2}, 0.5), m, m), {2.5, 3.5, 6.5, 11.5});  // in the dtype of all three
  expect_values(addmm(nan, ones({2, 1}), ones({1, 2}), 0), {1, 1, 1, 1});
  EXPECT_EQ(addmm(zeros({2, 3}), zeros({2, 0}), zeros({0, 3})).shape(), (Shape{2, 3}));
  expect_values(inner(full({}, 3.0), full({2}, 2.0)), {6, 6});
  EXPECT_EQ(tensordot(zeros({2, 3}), zeros({4}), 0).shape(), (Shape{2, 3, 4}));
  EXPECT_EQ(kron(ones({2}), ones({3, 4})).shape(), (Shape{3, 8}));
  EXPECT_EQ(outer(zeros({0}), zeros({3})).shape(), (Shape{0, 3}));
  expect_values(dot(zeros({0}), zeros({0})), {0});
  expect_values(cross(Tensor::from_vector<int64_t>({1, 0, 0}, {3}), Tensor::from_vector<int64_t>({0, 1, 0}, {3})),
                {0, 0, 1});
  EXPECT_EQ(cross(ones({3, 1}), ones({3, 5}), 0).shape(), (Shape{3, 5}));
}

TEST(MatrixErrors, NameTheFunction) {
  const Tensor m = zeros({2, 3}), v = zeros({3});
  EXPECT_EQ(error_of([&] { diagonal(v); }), "diagonal: got [3]; need two dims or more");
  EXPECT_EQ(error_of([&] { diagonal(m, 0, 1, -1); }), "diagonal: dims 1 and -1 are the same; need two dims");
  EXPECT_EQ(error_of([&] { trace(v); }), "trace: got [3]; need a matrix");
  EXPECT_EQ(error_of([&] { diag(zeros({2, 2, 2})); }), "diag: got [2, 2, 2]; need a vector or a matrix");
  EXPECT_EQ(error_of([&] { dot(m, v); }), "dot: got [2, 3] and [3]; need two vectors of equal length");
  EXPECT_EQ(error_of([&] { mv(v, m); }), "mv: got [3] x [2, 3]; need a matrix [N, M] and a vector [M]");
  EXPECT_EQ(error_of([&] { cross(zeros({2}), zeros({2})); }),
            "cross: got [2] and [2]; need equal numbers of dims, and extent 3 in dim 0 of both");
  EXPECT_EQ(error_of([&] { cross(m, m, 0); }),
            "cross: got [2, 3] and [2, 3]; need equal numbers of dims, and extent 3 in dim 0 of both");
  EXPECT_EQ(error_of([&] { addmm(m, m, m); }), "addmm: got [2, 3] x [2, 3]; need matrices [N, K] and [K, M]");
  const Tensor i = zeros({2, 2}, {.dtype = kInt64});
  EXPECT_EQ(error_of([&] { addmm(i, i, i, 0.5); }), "addmm: beta or alpha is 0.5 and operands i64; need integers");
  EXPECT_EQ(error_of([&] {
              tensordot(m, m, {0, 0}, {0, 1});
            }),
            "tensordot: dim 0 of [2, 3] and dim 1 of [2, 3] differ; need equal extents");
  expect_error([&] { tensordot(m, m, 3); }, "tensordot: 3 dims of [2, 3] and [2, 3]");
  expect_error([&] { kron(zeros({1, 1, 1, 1, 1}), v); }, "kron: got [1, 1, 1, 1, 1] and [3]; need at most 4 dims");
  expect_error([&] { addmm(zeros({5}), zeros({2, 3}), zeros({3, 4})); }, "[5]");
}

}  // namespace
}  // namespace weft::testing
