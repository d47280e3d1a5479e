// Expert routing as plain loops. A product of f32 (or f64) values rounds once; the error of a sum of n of them in any
// order is at most n u times the sum of their magnitudes, to first order (Higham 2002, eq. 3.5); then one rounding to
// the result.
#include <algorithm>
#include <cmath>

#include "ops/testing/reference.h"

namespace weft::testing {
namespace {

constexpr Real kSlack = 1.1L;  // for terms of second order

int64_t at(const RefTensor& t, int64_t i) { return static_cast<int64_t>(t.v[static_cast<size_t>(i)]); }

std::vector<RefResult> order(const RefCall& c) {
  const int64_t n = c.in[0].numel(), k = c.in[0].type.shape[1], num = c.attrs.i("num_experts");
  RefResult slots, tokens, rows, counts, offsets;
  rows.v.resize(static_cast<size_t>(n));
  for (int64_t e = 0; e < num; ++e) {
    offsets.v.push_back(static_cast<Real>(slots.v.size()));
    for (int64_t s = 0; s < n; ++s) {
      if (at(c.in[0], s) != e) continue;
      rows.v[static_cast<size_t>(s)] = static_cast<Real>(slots.v.size());
      slots.v.push_back(static_cast<Real>(s));
      tokens.v.push_back(static_cast<Real>(s / k));
    }
    counts.v.push_back(static_cast<Real>(slots.v.size()) - offsets.v.back());
  }
  offsets.v.push_back(static_cast<Real>(n));
  return {slots, tokens, rows, counts, offsets};
}

/// The accumulation dtype for 16-bit values.
DType computed(const RefCall& c) { return c.in[0].type.dtype == kFloat64 ? kFloat64 : kFloat32; }

/// Sum of products of f32 (or f64) values.
struct Sum {
  Real v = 0, size = 0, terms = 0;
  void add(Real a, Real b) {
    v += a * b;
    size += std::fabs(a * b);
    ++terms;
  }
  void to(RefResult& r, const RefCall& c) const {
    const Real error = kSlack * (terms + 1) * unit_roundoff(computed(c)) * size + 2 * tiny_roundoff(computed(c));
    r.v.push_back(v);
    r.bound.push_back(rounding_bound(v, error, computed(c), c.out[0].dtype));
  }
};

std::vector<RefResult> dispatch(const RefCall& c) {
  const int64_t d = c.out[0].shape[1];
  RefResult r;
  for (Index i(c.out[0].shape); i.valid(); i.next()) {
    const Real x = c.in[0].v[static_cast<size_t>(at(c.in[2], i[0]) * d + i[1])];
    if (c.in.size() < 5) {
      r.v.push_back(x);
      continue;
    }
    Sum product;
    product.add(x, c.in[4].v[static_cast<size_t>(at(c.in[1], i[0]))]);
    product.to(r, c);
  }
  return {r};
}

std::vector<RefResult> combine(const RefCall& c) {
  const int64_t d = c.out[0].shape[1], k = c.attrs.i("k");
  RefResult r;
  for (Index i(c.out[0].shape); i.valid(); i.next()) {
    Sum sum;
    for (int64_t s = i[0] * k; s < (i[0] + 1) * k; ++s)
      sum.add(c.in[0].v[static_cast<size_t>(at(c.in[3], s) * d + i[1])],
              c.in.size() < 5 ? 1 : c.in[4].v[static_cast<size_t>(s)]);
    sum.to(r, c);
  }
  return {r};
}

std::vector<RefResult> dots(const RefCall& c) {
  const int64_t d = c.in[1].type.shape[1], k = c.attrs.i("k");
  RefResult r;
  for (Index i(c.out[0].shape); i.valid(); i.next()) {
    Sum sum;
    for (int64_t j = 0; j < d; ++j)
      sum.add(c.in[0].v[static_cast<size_t>(at(c.in[4], i[0] * k + i[1]) * d + j)],
              c.in[1].v[static_cast<size_t>(i[0] * d + j)]);
    sum.to(r, c);
  }
  return {r};
}

}  // namespace

std::span<const RefRow> moe_references() {
  static const RefRow rows[] = {
      {"expert_order", order}, {"dispatch_rows", dispatch}, {"combine_rows", combine}, {"row_dots", dots}};
  return rows;
}

}  // namespace weft::testing
