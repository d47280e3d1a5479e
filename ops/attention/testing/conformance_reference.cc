// Attention and its derivative in f64, by plain loops over all points, and bounds on a kernel's errors.
#include <algorithm>
#include <cmath>
#include <limits>

#include "framework/testing/compare.h"
#include "ops/attention/testing/conformance.h"

namespace weft::testing {
namespace {

using Reals = std::vector<double>;
constexpr double kInf = std::numeric_limits<double>::infinity();

// c [rows, n] += a [rows, depth] b [depth, n], four rows at a time.
void add_product(int64_t rows, int64_t depth, int64_t n, const double* a, const double* b, double* c) {
  for (int64_t r = 0; r < rows; r += 4) {
    const int64_t many = std::min<int64_t>(4, rows - r);
    for (int64_t d = 0; d < depth; ++d) {
      double w[4] = {};
      bool any = false;
      for (int64_t i = 0; i < many; ++i) any |= (w[i] = a[(r + i) * depth + d]) != 0;
      if (!any) continue;
      const double* from = b + d * n;
      double* to = c + r * n;
      if (many == 4) {
        double* __restrict c0 = to;
        double* __restrict c1 = to + n;
        double* __restrict c2 = to + 2 * n;
        double* __restrict c3 = to + 3 * n;
        for (int64_t j = 0; j < n; ++j) {
          const double x = from[j];
          c0[j] += w[0] * x, c1[j] += w[1] * x, c2[j] += w[2] * x, c3[j] += w[3] * x;
        }
      } else {
        for (int64_t i = 0; i < many; ++i)
          for (int64_t j = 0; j < n; ++j) to[i * n + j] += w[i] * from[j];
      }
    }
  }
}

Reals transposed(int64_t rows, int64_t cols, const double* a) {
  Reals t(rows * cols);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) t[j * rows + i] = a[i * cols + j];
  return t;
}

// Euclidean norms of rows, and the largest magnitude of all.
Reals norms(int64_t rows, int64_t cols, const double* a) {
  Reals r(rows);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) r[i] += a[i * cols + j] * a[i * cols + j];
    r[i] = std::sqrt(r[i]);
  }
  return r;
}
double greatest(const Reals& a) {
  double m = 0;
  for (double x : a) m = std::max(m, std::abs(x));
  return m;
}

}  // namespace

DenseAttention::DenseAttention(const AttentionSizes& s, DType type, double scale, const AttentionValues& x,
                               const MadeMask& mask, const MadeScore& score, std::span<const DType> table_types,
                               Products products) {
  const DType wide = type == kFloat64 ? kFloat64 : kFloat32;
  const double eps = unit_roundoff(wide), u = unit_roundoff(type), tiny = 2 * tiny_roundoff(type);
  // Exponentials and bf16 products may flush each term below the smallest normal number to 0.
  const bool half = type == kFloat16 && products == Products::kTensorCores;
  const double flushed = wide == kFloat64 ? 0 : half ? 0x1p-24 : 0x1p-126;
  // Relative rounding error of operands that all products round on input.
  const double cut = products == Products::kTf32 ? 0x1p-11 : 0;
  // bf16 products round their operands to bf16, including probabilities and gradients of scores.
  const double narrow = type == kBFloat16 || half ? 2 * u : 4 * cut;
  const int64_t sq = s.sq, skv = s.skv, d = s.d, dv_n = s.dv, group = s.hq / s.hkv, rows = s.b * s.hq * sq,
                keys = s.kv_b * s.hkv * skv;
  const double n = static_cast<double>(skv), kmax = greatest(x.k), qmax = greatest(x.q), vmax = greatest(x.v),
               dmax = greatest(x.dout);
  auto sized = [](Bounded* r, int64_t count) { r->value.assign(count, 0), r->bound.assign(count, 0); };
  sized(&out, rows * dv_n), sized(&lse, rows), sized(&max, rows);
  sized(&dq, rows * d), sized(&dk, keys * d), sized(&dv, keys * dv_n);
  std::vector<Reals> table_size, table_count;
  for (const Tensor& t : score.tables) {
    tables.emplace_back();
    sized(&tables.back(), t.numel());
    table_size.emplace_back(t.numel()), table_count.emplace_back(t.numel());
  }
  Reals key_error(keys), key_size(keys), value_error(keys), value_size(keys);  // error sums of the rows of dk and dv
  Reals p(sq * skv), ds(sq * skv), scores(sq * skv), dp(sq * skv);
  for (int64_t b = 0; b < s.b; ++b)
    for (int64_t h = 0; h < s.hq; ++h) {
      const int64_t row0 = (b * s.hq + h) * sq, key0 = ((s.kv_b == 1 ? 0 : b) * s.hkv + h / group) * skv;
      const double *q = &x.q[row0 * d], *k = &x.k[key0 * d], *v = &x.v[key0 * dv_n], *dout = &x.dout[row0 * dv_n];
      const Reals nq = norms(sq, d, q), nk = norms(skv, d, k), nv = norms(skv, dv_n, v), nd = norms(sq, dv_n, dout);
      scores.assign(sq * skv, 0), dp.assign(sq * skv, 0), p.assign(sq * skv, 0), ds.assign(sq * skv, 0);
      add_product(sq, d, skv, q, transposed(skv, d, k).data(), scores.data());
      add_product(sq, dv_n, skv, dout, transposed(skv, dv_n, v).data(), dp.data());
      std::vector<ScorePoint> at(skv);
      for (int64_t i = 0; i < sq; ++i) {
        const int64_t row = row0 + i;
        double *s_i = &scores[i * skv], *p_i = &p[i * skv], *ds_i = &ds[i * skv], *dp_i = &dp[i * skv];
        // score_error: of the modified scores; largest: the largest of their magnitudes.
        double top = -kInf, total = 0, score_error = 0, raw_error = 0, largest = 0;
        for (int64_t j = 0; j < skv; ++j) {
          at[j].value = -kInf;
          if (!mask.seen(b, h, i, j)) continue;
          const double error = (static_cast<double>(d + 12) * eps + 2.1 * cut) * nq[i] * nk[j] * scale;
          at[j] = score.at(b, h, i, j, s_i[j] * scale);
          if (at[j].value == -kInf) continue;
          raw_error = std::max(raw_error, error);
          const double slope = std::abs(at[j].slope) + at[j].curve * error;
          score_error = std::max(score_error, slope * error + 8 * eps * at[j].size);
          largest = std::max(largest, std::abs(at[j].value));
          top = std::max(top, at[j].value);
        }
        max.value[row] = top, lse.value[row] = top;
        if (top == -kInf) continue;
        for (int64_t j = 0; j < skv; ++j) total += p_i[j] = std::exp(at[j].value - top);
        lse.value[row] = top + std::log(total);
        const double exponential = score_error + eps * (3 * largest + 16) + 4 * eps;
        max.bound[row] = score_error + 2 * eps * largest;
        lse.bound[row] = exponential + n * eps + 6 * eps * (largest + std::log(n + 1) + 1);
        const double relative = 2 * exponential + 2 * n * eps + narrow;  // error of a sum of probabilities times values
        double* o = &out.value[row * dv_n];
        for (int64_t j = 0; j < skv; ++j) p_i[j] /= total;
        add_product(1, skv, dv_n, p_i, v, o);
        double delta = -x.dlse[row], delta_size = std::abs(x.dlse[row]), delta_error = 0;
        for (int64_t e = 0; e < dv_n; ++e) {
          const double bound = 1.01 * relative * vmax + std::abs(o[e]) * u + tiny + n * flushed;
          out.bound[row * dv_n + e] = bound;
          delta += o[e] * dout[i * dv_n + e];
          delta_size += std::abs(o[e] * dout[i * dv_n + e]);
          delta_error += bound * std::abs(dout[i * dv_n + e]);
        }
        delta_error += static_cast<double>(dv_n + 4) * eps * delta_size;
        const double probability = exponential + lse.bound[row] + narrow;
        double row_error = 0, row_size = 0;
        for (int64_t j = 0; j < skv; ++j) {
          if (p_i[j] == 0) continue;
          const double size = nd[i] * nv[j];  // size of dp's terms
          const double change = std::abs(dp_i[j] - delta);
          const double plain = p_i[j] * (dp_i[j] - delta);
          const double error =
              p_i[j] * ((probability + 4 * eps) * change + (static_cast<double>(dv_n + 4) * eps + 2.1 * cut) * size +
                        delta_error + eps * (size + delta_size));
          const double slope_error = at[j].curve * raw_error + 8 * eps * std::abs(at[j].slope);
          ds_i[j] = plain * at[j].slope;
          const double whole = error * (std::abs(at[j].slope) + slope_error) + std::abs(plain) * slope_error +
                               narrow * std::abs(ds_i[j]);
          row_error += whole, row_size += std::abs(ds_i[j]);
          key_error[key0 + j] += whole, key_size[key0 + j] += std::abs(ds_i[j]);
          value_error[key0 + j] += p_i[j] * probability, value_size[key0 + j] += p_i[j];
          for (int r = 0; r < at[j].reads; ++r) {
            const ScorePoint::Read& read = at[j].read[r];
            const double term = plain * read.slope,
                         coefficient_error = read.curve * raw_error + 8 * eps * std::abs(read.slope);
            tables[read.table].value[read.at] += term;
            tables[read.table].bound[read.at] +=
                error * (std::abs(read.slope) + coefficient_error) + std::abs(plain) * coefficient_error;
            table_size[read.table][read.at] += std::abs(term);
            table_count[read.table][read.at] += 1;
          }
        }
        for (int64_t e = 0; e < d; ++e)
          dq.bound[row * d + e] = 1.01 * scale * kmax * (row_error + ((n + 4) * eps + 2.1 * cut) * row_size);
      }
      for (double& g : ds) g *= scale;
      add_product(sq, skv, d, ds.data(), k, &dq.value[row0 * d]);
      add_product(skv, sq, d, transposed(sq, skv, ds.data()).data(), q, &dk.value[key0 * d]);
      add_product(skv, sq, dv_n, transposed(sq, skv, p.data()).data(), dout, &dv.value[key0 * dv_n]);
    }
  const double queries = static_cast<double>(sq * group * (s.kv_b == 1 ? s.b : 1));
  for (int64_t j = 0; j < keys; ++j) {
    for (int64_t e = 0; e < d; ++e)
      dk.bound[j * d + e] = 1.01 * scale * qmax * (key_error[j] + ((queries + 4) * eps + 2.1 * cut) * key_size[j]);
    for (int64_t e = 0; e < dv_n; ++e)
      dv.bound[j * dv_n + e] = 1.01 * dmax * (value_error[j] + ((queries + 4) * eps + 2.1 * cut) * value_size[j]);
  }
  for (auto [r, terms] : {std::pair{&dq, n}, {&dk, queries}, {&dv, queries}})
    for (size_t i = 0; i < r->value.size(); ++i) r->bound[i] += std::abs(r->value[i]) * u + tiny + 2 * terms * flushed;
  for (size_t t = 0; t < tables.size(); ++t) {
    const DType type = table_types[t];
    if (!is_floating(type)) continue;
    // Terms of a 16-bit table are rounded one by one.
    const double own = unit_roundoff(type), each = type == kFloat64 || type == kFloat32 ? 0 : 2 * own;
    for (size_t i = 0; i < tables[t].value.size(); ++i)
      tables[t].bound[i] = 1.01 * (tables[t].bound[i] + ((table_count[t][i] + 4) * eps + each) * table_size[t][i]) +
                           own * std::abs(tables[t].value[i]) + 2 * tiny_roundoff(type) +
                           2 * table_count[t][i] * flushed;
  }
}

}  // namespace weft::testing
