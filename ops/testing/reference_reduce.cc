// Reductions and running sums in extended precision. The error of a sum of n terms in any order is at most (n - 1) u
// sum|x| (Higham 2002, eq. 4.4); the error of a product is a factor (1 + u)^(n - 1).
#include <algorithm>
#include <cmath>

#include "ops/testing/reference.h"

namespace weft::testing {
namespace {

// The terms of each result, in row-major order.
std::vector<std::vector<Real>> groups_of(const RefCall& c, const Shape& dims) {
  std::vector<std::vector<Real>> groups(c.out[0].shape.numel());
  const Shape& shape = c.in[0].type.shape;
  for (Index i(shape); i.valid(); i.next()) {
    int64_t at = 0;
    for (int d = 0; d < shape.size(); ++d) {
      bool reduced = false;
      for (int64_t r : dims) reduced |= r == d;
      if (!reduced) at = at * shape[d] + i[d];
    }
    groups[at].push_back(c.in[0].v[i.flat()]);
  }
  return groups;
}

RefResult sum_of(const RefCall& c, const std::vector<std::vector<Real>>& groups) {
  RefResult r;
  const DType out = c.out[0].dtype, computed = c.computed();
  for (const auto& g : groups) {
    Real s = 0, magnitude = 0;
    for (Real v : g) {
      s += v;
      magnitude += std::fabs(v);
    }
    const Real n = static_cast<Real>(g.size());
    r.v.push_back(is_floating(out) ? s : rounded(s, out));
    r.bound.push_back(rounding_bound(s, n * unit_roundoff(computed) * magnitude, computed, out));
  }
  return r;
}

std::vector<RefResult> reduce_sum(const RefCall& c) { return {sum_of(c, groups_of(c, c.attrs.ints("dims")))}; }

std::vector<RefResult> reduce_prod(const RefCall& c) {
  RefResult r;
  const DType out = c.out[0].dtype, computed = c.computed();
  for (const auto& g : groups_of(c, c.attrs.ints("dims"))) {
    Real p = 1;
    for (Real v : g) p *= v;
    r.v.push_back(is_floating(out) ? p : rounded(p, out));
    const Real n = static_cast<Real>(g.size());
    r.bound.push_back(rounding_bound(p, n * unit_roundoff(computed) * 1.01L * std::fabs(p), computed, out));
  }
  return {r};
}

template <bool kGreatest>
bool better(Real a, Real b) {
  if (std::isnan(b)) return false;
  return std::isnan(a) || (kGreatest ? a > b : a < b);
}

template <bool kGreatest>
std::vector<RefResult> extreme(const RefCall& c) {
  RefResult r;
  for (const auto& g : groups_of(c, c.attrs.ints("dims"))) {
    Real best = g[0];
    for (Real v : g)
      if (better<kGreatest>(v, best)) best = v;
    r.v.push_back(best);
  }
  return {r};
}

template <bool kGreatest>
std::vector<RefResult> place_of_extreme(const RefCall& c) {
  RefResult r;
  for (const auto& g : groups_of(c, Shape{c.attrs.i("dim")})) {
    size_t best = 0;
    for (size_t i = 1; i < g.size(); ++i)
      if (better<kGreatest>(g[i], g[best])) best = i;
    r.v.push_back(static_cast<Real>(best));
  }
  return {r};
}

std::vector<RefResult> cumsum(const RefCall& c) {
  const int dim = static_cast<int>(c.attrs.i("dim"));
  const bool reverse = c.attrs.b("reverse", false);
  const Shape& shape = c.in[0].type.shape;
  const DType out = c.out[0].dtype, computed = c.computed();
  RefResult r;
  for (Index i(shape); i.valid(); i.next()) {
    Real s = 0, magnitude = 0, n = 0;
    Shape at = i.at();
    for (int64_t k = reverse ? i[dim] : 0; k < (reverse ? shape[dim] : i[dim] + 1); ++k) {
      at[dim] = k;
      Real v = c.in[0].v[flat_of(shape, at)];
      s += v;
      magnitude += std::fabs(v);
      ++n;
    }
    r.v.push_back(is_floating(out) ? s : rounded(s, out));
    r.bound.push_back(rounding_bound(s, n * unit_roundoff(computed) * magnitude, computed, out));
  }
  return {r};
}

// Relative errors to first order: the difference from the largest value has an error of u of itself, which e^ makes
// relative; e^ adds 4 u; the sum has the errors of its terms and n u more; the quotient adds u.
std::vector<RefResult> softmax(const RefCall& c) {
  const int dim = static_cast<int>(c.attrs.i("dim"));
  const Shape& shape = c.in[0].type.shape;
  const DType out = c.out[0].dtype, computed = c.computed();
  const Real u = unit_roundoff(computed), n = static_cast<Real>(shape[dim]);
  RefResult r;
  for (Index i(shape); i.valid(); i.next()) {
    Shape at = i.at();
    auto x = [&](int64_t k) {
      at[dim] = k;
      return c.in[0].v[flat_of(shape, at)];
    };
    Real top = -INFINITY, sum = 0, error = 0;
    for (int64_t k = 0; k < shape[dim]; ++k) top = std::max(top, x(k));
    for (int64_t k = 0; k < shape[dim]; ++k) {
      const Real e = std::exp(x(k) - top);
      sum += e;
      error += e * u * (top - x(k) + 4);
    }
    const Real d = x(i[dim]) - top, y = std::exp(d) / sum;
    r.v.push_back(y);
    const Real relative = u * (4 - d) + error / sum + n * u + u;
    r.bound.push_back(rounding_bound(y, 1.1L * y * relative, computed, out));
  }
  return {r};
}

}  // namespace

std::span<const RefRow> reduce_references() {
  static const RefRow rows[] = {
      {"reduce_sum", reduce_sum},
      {"reduce_prod", reduce_prod},
      {"reduce_max", extreme<true>},
      {"reduce_min", extreme<false>},
      {"argmax", place_of_extreme<true>},
      {"argmin", place_of_extreme<false>},
      {"cumsum", cumsum},
      {"softmax", softmax},
  };
  return rows;
}

}  // namespace weft::testing
