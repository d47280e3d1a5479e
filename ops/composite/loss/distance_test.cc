#include "ops/composite/loss/distance.h"

#include <cmath>
#include <limits>

#include "framework/autodiff/grad.h"
#include "ops/composite/testing/composite_table.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"

namespace weft::testing {
namespace {

using Args = std::span<const Tensor>;
constexpr double kInf = std::numeric_limits<double>::infinity();

Real norm_reference(const Reals& v, double p) {
  Real s = p == -kInf ? Real(kInf) : 0;
  for (Real x : v) {
    const Real a = std::fabs(x);
    s = p == kInf ? std::max(s, a) : p == -kInf ? std::min(s, a) : s + (p == 0 ? Real(x != 0) : std::pow(a, Real(p)));
  }
  return std::isinf(p) || p == 0 ? s : std::pow(s, 1 / Real(p));
}

CompositeRow norm_row(const char* name, double p) {
  return {name,
          {{Shape{3, 7}}},
          [p](Args a) { return norm(a[0], p, 1); },
          [p](const std::vector<Reals>& in) {
            Reals y;
            for (int i = 0; i < 3; ++i) y.push_back(norm_reference(row_of(in[0], i, 7), p));
            return y;
          }};
}

// Distances of 4 rows from `n` rows of 3.
CompositeRow cdist_row(const char* name, double p, int n, std::string_view mode) {
  return {name,
          {{Shape{4, 3}}, {Shape{n, 3}, kFloat32, 3, 4}},
          [=](Args a) { return cdist(a[0], a[1], p, mode); },
          [=](const std::vector<Reals>& in) {
            Reals y;
            for (int i = 0; i < 4; ++i)
              for (int j = 0; j < n; ++j) {
                Reals d;
                for (int k = 0; k < 3; ++k) d.push_back(in[0][i * 3 + k] - in[1][j * 3 + k]);
                y.push_back(norm_reference(d, p));
              }
            return y;
          },
          64};
}

std::vector<CompositeRow> table() {
  std::vector<CompositeRow> all = {
      norm_row("norm_2", 2),
      norm_row("norm_1", 1),
      norm_row("norm_3", 3),
      norm_row("norm_half", 0.5),
      norm_row("norm_max", kInf),
      norm_row("norm_min", -kInf),
      {"normalize",
       {{Shape{3, 7}}},
       [](Args a) { return normalize(a[0]); },
       [](const std::vector<Reals>& in) {
         Reals y;
         for (int i = 0; i < 3; ++i)
           for (Real x : row_of(in[0], i, 7)) y.push_back(x / norm_reference(row_of(in[0], i, 7), 2));
         return y;
       }},
      {"cosine_similarity",
       {{Shape{3, 7}}, {Shape{3, 7}}},
       [](Args a) { return cosine_similarity(a[0], a[1]); },
       [](const std::vector<Reals>& in) {
         Reals y;
         for (int i = 0; i < 3; ++i) {
           const Reals a = row_of(in[0], i, 7), b = row_of(in[1], i, 7);
           Real s = 0;
           for (int k = 0; k < 7; ++k) s += a[k] * b[k];
           y.push_back(s / (norm_reference(a, 2) * norm_reference(b, 2)));
         }
         return y;
       },
       16,
       true,
       false,
       1},
      {"pairwise_distance",
       {{Shape{3, 7}}, {Shape{3, 7}}},
       [](Args a) { return pairwise_distance(a[0], a[1]); },
       [](const std::vector<Reals>& in) {
         Reals y;
         for (int i = 0; i < 3; ++i) {
           Reals d;
           for (int k = 0; k < 7; ++k) d.push_back(in[0][i * 7 + k] - in[1][i * 7 + k] + Real(1e-6));
           y.push_back(norm_reference(d, 2));
         }
         return y;
       }},
      cdist_row("cdist_1", 1, 5, "use_mm_for_euclid_dist_if_necessary"),
      cdist_row("cdist_2", 2, 5, "use_mm_for_euclid_dist_if_necessary"),
      cdist_row("cdist_2_by_product", 2, 30, "use_mm_for_euclid_dist_if_necessary"),
      cdist_row("cdist_2_without_product", 2, 30, "donot_use_mm_for_euclid_dist"),
      cdist_row("cdist_max", kInf, 5, "use_mm_for_euclid_dist_if_necessary"),
  };
  return all;
}
WEFT_TEST_COMPOSITES(Distance, table());

Tensor of(const std::vector<double>& v, const Shape& shape) { return Tensor::from_vector<double>(v, shape); }

TEST(Distance, GradientsAreZeroWhereANormIs) {
  Tensor x = of({0, 0, 3, 4, 0, 1}, {3, 2}).requires_grad();
  for (double p : {2.0, 1.0, 3.0, 1.5, 0.5, kInf}) {
    const std::vector<double> g = grad(norm(x, p, 1).sum(), {x})[0].to_vector<double>();
    for (double v : g) EXPECT_TRUE(std::isfinite(v)) << p;
    EXPECT_EQ(g[0], 0) << p;
    EXPECT_EQ(g[5], 1) << p;
  }
  expect_values(grad(normalize(x).sum(), {x})[0].slice(0, 2, 3), {1, 0});
  for (const char* mode : {"use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist"}) {
    Tensor a = of({3, 4}, {1, 2}).requires_grad();
    expect_values(cdist(a, a, 2, mode), {0});
    expect_values(grad(cdist(a, a.detach(), 2, mode).sum(), {a})[0], {0, 0});
  }
}

TEST(Distance, EmptyAndSmallOperands) {
  expect_values(norm(of({3, -4}, {2})), {5});
  expect_values(norm(of({3, 0}, {2}), 0), {1});
  expect_values(norm(of({2, 0}, {2}), -1), {0});
  expect_values(norm(zeros({2, 0}), 2, 1), {0, 0});
  EXPECT_EQ(norm(zeros({0, 3}), kInf, 1).shape(), (Shape{0}));
  EXPECT_EQ(norm(ones({2, 3}), 2, {}, true).shape(), (Shape{1, 1}));
  for (double p : {0.0, 1.0, 2.0, 3.0, kInf}) {
    expect_values(cdist(zeros({2, 0}), zeros({1, 0}), p), {0, 0});
    EXPECT_EQ(cdist(zeros({0, 3}), zeros({30, 3}), p).shape(), (Shape{0, 30}));
  }
  EXPECT_EQ(cdist(zeros({5, 1, 2, 3}), zeros({4, 30, 3})).shape(), (Shape{5, 4, 2, 30}));
  expect_values(cosine_similarity(of({0, 0}, {2}), of({1, 0}, {2}), 0), {0});
}

TEST(DistanceErrors, NameTheFunction) {
  EXPECT_EQ(error_of([] { norm(zeros({2}, {.dtype = kInt64})); }),
            "norm: operand is i64[2]; need a floating-point dtype");
  EXPECT_EQ(error_of([] {
              cdist(zeros({2, 3}), zeros({2, 4}));
            }),
            "cdist: got [2, 3] and [2, 4]; need [..., P, M] and [..., R, M]");
  EXPECT_EQ(error_of([] { cdist(zeros({2, 3}), zeros({2, 3}), -1); }), "cdist: p is -1; need 0 or more");
  expect_error([] { cdist(zeros({2, 3}), zeros({2, 3}), 2, "mm"); }, "cdist: compute_mode is 'mm'; need");
  expect_error([] { normalize(zeros({2})); }, "normalize: dim 1 is out of range");
  expect_error([] { pairwise_distance(zeros({}), zeros({})); }, "pairwise_distance: got scalars");
}

}  // namespace
}  // namespace weft::testing
