// Contractions that are not matrix products: f(a[m, k], b[k, n]) reduced over k. One kernel each for forward and
// backward never stores the m x k x n intermediate. Results have the bits of eager, and the values of f64 within a
// derived bound.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "compiler/exec/testing/test_programs.h"
#include "framework/autodiff/grad.h"
#include "framework/base/thread_pool.h"
#include "ops/composite/composite.h"
#include "ops/core/core.h"

namespace weft {
namespace {

using testing::same_bits;
using Tensors = std::vector<Tensor>;
using Matrix = std::vector<double>;

constexpr double kU = 0x1p-24;  // unit roundoff of f32

struct Shape3 {
  int64_t m, k, n;
};

Matrix values(const Tensor& t) {
  const std::vector<float> v = t.contiguous().to_vector<float>();
  return Matrix(v.begin(), v.end());
}

// Result, gradients of sum(w * result) for a and b, and the largest rounding error of each element in f32.
struct Reference {
  Matrix out, da, db, out_bound, da_bound, db_bound;
  Reference(Shape3 s)
      : out(s.m * s.n), da(s.m * s.k), db(s.k * s.n), out_bound(out.size()), da_bound(da.size()), db_bound(db.size()) {}
};

// Adds a term to a sum over one index. Its relative error is `of_term` roundings, and one for each addition.
void accumulate(Matrix& sum, Matrix& bound, int64_t at, double term, int64_t terms, double of_term) {
  sum[at] += term;
  bound[at] += kU * (static_cast<double>(terms) + of_term) * std::abs(term);
}

struct Contraction {
  const char* name;
  Tensor (*fn)(const Tensor& a, const Tensor& b);
  Reference (*reference)(const Matrix& a, const Matrix& b, const Matrix& w, Shape3 s);
  int launches;  // forward and backward together, at most
};

Tensor log_matmul(const Tensor& a, const Tensor& b) { return logsumexp(a.unsqueeze(-1) + b.unsqueeze(0), {-2}); }
Tensor l1_distance(const Tensor& a, const Tensor& b) { return sum(abs(a.unsqueeze(-1) - b.unsqueeze(0)), {-2}); }
Tensor max_plus(const Tensor& a, const Tensor& b) { return amax(a.unsqueeze(-1) + b.unsqueeze(0), {-2}); }

// p = exp(a + b - out): rounding of a + b, of the difference and of out become relative errors of the exponential.
Reference log_matmul_reference(const Matrix& a, const Matrix& b, const Matrix& w, Shape3 s) {
  Reference r(s);
  for (int64_t i = 0; i < s.m; ++i)
    for (int64_t j = 0; j < s.n; ++j) {
      double top = -INFINITY, largest = 0, sum = 0;
      for (int64_t k = 0; k < s.k; ++k) {
        const double x = a[i * s.k + k] + b[k * s.n + j];
        top = std::max(top, x), largest = std::max(largest, std::abs(x));
      }
      for (int64_t k = 0; k < s.k; ++k) sum += std::exp(a[i * s.k + k] + b[k * s.n + j] - top);
      const double out = top + std::log(sum);
      const double relative = static_cast<double>(s.k) + 4 + 4 * largest;
      r.out[i * s.n + j] = out;
      r.out_bound[i * s.n + j] = kU * (relative + 2 * std::abs(std::log(sum)) + std::abs(out));
      for (int64_t k = 0; k < s.k; ++k) {
        const double p = std::exp(a[i * s.k + k] + b[k * s.n + j] - out), g = w[i * s.n + j] * p;
        const double of_term = relative + 8 + 4 * largest + 4 * std::abs(out);
        accumulate(r.da, r.da_bound, i * s.k + k, g, s.n, of_term);
        accumulate(r.db, r.db_bound, k * s.n + j, g, s.m, of_term);
      }
    }
  return r;
}

Reference l1_distance_reference(const Matrix& a, const Matrix& b, const Matrix& w, Shape3 s) {
  Reference r(s);
  for (int64_t i = 0; i < s.m; ++i)
    for (int64_t j = 0; j < s.n; ++j)
      for (int64_t k = 0; k < s.k; ++k) {
        const double d = a[i * s.k + k] - b[k * s.n + j], g = d > 0 ? w[i * s.n + j] : d < 0 ? -w[i * s.n + j] : 0;
        accumulate(r.out, r.out_bound, i * s.n + j, std::abs(d), s.k, 1);
        accumulate(r.da, r.da_bound, i * s.k + k, g, s.n, 0);
        accumulate(r.db, r.db_bound, k * s.n + j, -g, s.m, 0);
      }
  return r;
}

// The gradient goes to the largest sum as f32 rounds it, in equal parts where several are.
Reference max_plus_reference(const Matrix& a, const Matrix& b, const Matrix& w, Shape3 s) {
  Reference r(s);
  auto at = [&](int64_t i, int64_t k, int64_t j) {
    return static_cast<float>(a[i * s.k + k]) + static_cast<float>(b[k * s.n + j]);
  };
  for (int64_t i = 0; i < s.m; ++i)
    for (int64_t j = 0; j < s.n; ++j) {
      float top = -INFINITY;
      int ties = 0;
      for (int64_t k = 0; k < s.k; ++k) top = std::max(top, at(i, k, j));
      for (int64_t k = 0; k < s.k; ++k) ties += at(i, k, j) == top;
      r.out[i * s.n + j] = top;
      for (int64_t k = 0; k < s.k; ++k) {
        const double g = at(i, k, j) == top ? w[i * s.n + j] / ties : 0;
        accumulate(r.da, r.da_bound, i * s.k + k, g, s.n, 2);
        accumulate(r.db, r.db_bound, k * s.n + j, g, s.m, 2);
      }
    }
  return r;
}

constexpr Contraction kContractions[] = {{"log-space product", log_matmul, log_matmul_reference, 4},
                                         {"L1 distance", l1_distance, l1_distance_reference, 3},
                                         {"max-plus", max_plus, max_plus_reference, 4}};

void expect_near(const Tensor& got, const Matrix& want, const Matrix& bound, const std::string& what) {
  const Matrix v = values(got);
  ASSERT_EQ(v.size(), want.size()) << what;
  for (size_t i = 0; i < v.size(); ++i) ASSERT_LE(std::abs(v[i] - want[i]), bound[i]) << what << " at " << i;
}

TEST(Contraction, HasTheValuesOfF64AndTheBitsOfEager) {
  uint64_t seed = 0;
  for (const Contraction& c : kContractions)
    for (const Shape3 s : {Shape3{1, 1, 1}, {5, 3, 17}, {33, 47, 16}, {16, 130, 67}, {1, 64, 40}, {40, 64, 1}}) {
      SCOPED_TRACE(str_cat(c.name, " ", s.m, "x", s.k, "x", s.n));
      manual_seed(++seed);
      const Tensor a = randn({s.m, s.k}), b = randn({s.k, s.n}), w = randn({s.m, s.n});
      const auto step = [&](const Tensors& in) {
        const Tensor out = c.fn(in[0], in[1]);
        const std::vector<Tensor> g = grad((out * in[2]).sum(), {in[0], in[1]});
        return Tensors{out, g[0], g[1]};
      };
      const Tensors in{a.requires_grad(), b.requires_grad(), w}, eager = step(in);
      const Reference want = c.reference(values(a), values(b), values(w), s);
      const int before = num_threads();
      for (int threads : {1, 2, 3}) {
        set_num_threads(threads);
        auto compiled = compile(step);
        const Tensors got = compiled(in);
        expect_near(got[0], want.out, want.out_bound, "result");
        expect_near(got[1], want.da, want.da_bound, "gradient of a");
        expect_near(got[2], want.db, want.db_bound, "gradient of b");
        for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same_bits(got[i], eager[i])) << "output " << i;
      }
      set_num_threads(before);
    }
}

TEST(Contraction, NeverHoldsTheIntermediate) {
  const Shape3 s{96, 80, 112};
  manual_seed(1);
  const Tensor a = randn({s.m, s.k}), b = randn({s.k, s.n}), w = randn({s.m, s.n});
  const int64_t matrices = 4 * (s.m * s.k + s.k * s.n + s.m * s.n), intermediate = 4 * s.m * s.k * s.n;
  for (const Contraction& c : kContractions) {
    auto forward = compile([&](const Tensors& in) { return Tensors{c.fn(in[0], in[1])}; });
    (void)forward(Tensors{a, b});
    EXPECT_EQ(forward.stats().kernels, 1) << c.name << "\n" << forward.report();
    EXPECT_LE(forward.stats().measured_peak_bytes, matrices) << c.name;
    auto both = compile([&](const Tensors& in) { return grad((c.fn(in[0], in[1]) * in[2]).sum(), {in[0], in[1]}); });
    (void)both(Tensors{a.requires_grad(), b.requires_grad(), w});
    EXPECT_LE(both.stats().kernels, c.launches) << c.name << "\n" << both.report();
    EXPECT_LE(both.stats().measured_peak_bytes, 2 * matrices) << c.name << "\n" << both.report();
    EXPECT_LT(2 * matrices, intermediate / 10);
  }
}

}  // namespace
}  // namespace weft
