// linear_cross_entropy and its gradients as plain loops. Errors are propagated to first order in the unit roundoff u:
// the error of a logit of D products is at most (D + 2) u sum|x w| (Higham 2002, eq. 3.5), the error of exp and log is
// kMath u relative, and the error of a sum of V terms is V u of their magnitudes, in any order.
#include <algorithm>
#include <cmath>

#include "ops/testing/reference.h"

namespace weft::testing {
namespace {

constexpr Real kMath = 4;      // ulp of exp and log, generously
constexpr Real kSlack = 1.1L;  // for terms of second order

struct Sum {
  Real v = 0, size = 0, error = 0;
  int64_t terms = 0;
  void add(Real a, Real a_error, Real b) {
    v += a * b;
    size += std::fabs(a * b);
    error += a_error * std::fabs(b);
    ++terms;
  }
  Real bound(Real u) const { return kSlack * (error + static_cast<Real>(terms + 1) * u * size); }
};

std::vector<RefResult> reference(const RefCall& c) {
  const bool grad = c.out.size() > 1;
  const std::vector<Real>&x = c.in[0].v, &w = c.in[1].v, &targets = c.in[2].v;
  const size_t bias_at = grad ? 4 : 3;
  const std::vector<Real>* bias = c.in.size() > bias_at ? &c.in[bias_at].v : nullptr;
  const int64_t n = c.in[0].type.shape[0], d = c.in[0].type.shape[1], classes = c.in[1].type.shape[0];
  const DType stored = c.in[0].type.dtype;
  const Real u = unit_roundoff(c.computed()), s = c.attrs.f("label_smoothing"), z = c.attrs.f("z_loss");
  const Real narrow = stored == c.computed() ? 0 : unit_roundoff(stored),
             tiny = stored == c.computed() ? 0 : tiny_roundoff(stored), v_terms = static_cast<Real>(classes);

  RefResult loss;
  std::vector<Sum> dx(static_cast<size_t>(n * d)), dw(static_cast<size_t>(classes * d)),
      db(static_cast<size_t>(classes));
  std::vector<Real> l(static_cast<size_t>(classes));
  for (int64_t i = 0; i < n; ++i) {
    const auto t = static_cast<int64_t>(targets[i]);
    if (t == c.attrs.i("ignore_index")) {
      loss.v.push_back(0);
      loss.bound.push_back(0);
      continue;
    }
    Real off = 0, most = 0, top = -INFINITY, mean = 0;  // off: error of a logit
    for (int64_t k = 0; k < classes; ++k) {
      Real sum = bias ? (*bias)[k] : 0, size = std::fabs(sum);
      for (int64_t j = 0; j < d; ++j) {
        sum += x[i * d + j] * w[k * d + j];
        size += std::fabs(x[i * d + j] * w[k * d + j]);
      }
      l[k] = sum;
      off = std::max(off, static_cast<Real>(d + 2) * u * size);
      most = std::max(most, std::fabs(sum));
      top = std::max(top, sum);
      mean += sum / v_terms;
    }
    Real total = 0;
    for (int64_t k = 0; k < classes; ++k) total += std::exp(l[k] - top);
    const Real lse = std::log(total) + top;
    const Real relative = 2 * off + 2 * u * most + (v_terms + 2 * kMath) * u;  // error of a softmax value
    const Real lse_off = off + (v_terms + kMath) * u + kMath * u * std::log(total) + 2 * u * (most + std::fabs(lse));
    const Real even = s / v_terms, weight = 1 + 2 * z * lse;
    loss.v.push_back((lse - l[t]) * (1 - s) + (lse - mean) * s + z * lse * lse);
    const Real loss_off = lse_off + off + (v_terms + 8) * u * (most + std::fabs(lse)) +
                          z * (2 * std::fabs(lse) * lse_off + 4 * u * lse * lse);
    loss.bound.push_back(kSlack * loss_off);
    if (!grad) continue;
    const Real g = c.in[3].v[i];
    for (int64_t k = 0; k < classes; ++k) {
      const Real p = std::exp(l[k] - lse), q = (k == t ? 1 - s : 0) + even;
      const Real dl = g * (weight * p - q);
      const Real size = std::fabs(g) * (std::fabs(weight) * p + q);
      const Real wide_off = std::fabs(g) * p * (std::fabs(weight) * relative + 2 * z * lse_off) + 8 * u * size;
      const Real dl_off = wide_off + narrow * (std::fabs(dl) + wide_off) + tiny;
      for (int64_t j = 0; j < d; ++j) {
        dx[i * d + j].add(dl, dl_off, w[k * d + j]);
        dw[k * d + j].add(dl, dl_off, x[i * d + j]);
      }
      db[k].add(dl, dl_off, 1);
    }
  }
  std::vector<RefResult> all{loss};
  for (size_t r = 0; r < all[0].v.size(); ++r)
    all[0].bound[r] = rounding_bound(all[0].v[r], all[0].bound[r], c.computed(0), c.out[0].dtype);
  for (int result = 1; result < static_cast<int>(c.out.size()); ++result) {
    RefResult r;
    for (const Sum& sum : result == 1 ? dx : result == 2 ? dw : db) {
      r.v.push_back(sum.v);
      r.bound.push_back(rounding_bound(sum.v, sum.bound(u), c.computed(result), c.out[result].dtype));
    }
    all.push_back(r);
  }
  return all;
}

}  // namespace

std::span<const RefRow> linear_cross_entropy_references() {
  static const RefRow rows[] = {{"linear_cross_entropy", reference}, {"linear_cross_entropy_grad", reference}};
  return rows;
}

}  // namespace weft::testing
