// Contractions as plain loops. The error of an inner product of K terms in any order is at most K u sum|a b| (Higham
// 2002, eq. 3.5), with or without fused multiply-add.
#include <cmath>

#include "ops/testing/reference.h"

namespace weft::testing {
namespace {

bool contains(const Shape& dims, int d) {
  for (int64_t x : dims)
    if (x == d) return true;
  return false;
}

void push(RefResult& r, const RefCall& c, Real sum, Real magnitude, Real terms) {
  r.v.push_back(is_floating(c.out[0].dtype) ? sum : rounded(sum, c.out[0].dtype));
  r.bound.push_back(
      rounding_bound(sum, terms * unit_roundoff(c.computed()) * 1.01L * magnitude, c.computed(), c.out[0].dtype));
}

std::vector<RefResult> dot(const RefCall& c) {
  const Shape &ab = c.attrs.ints("a_batch"), &bb = c.attrs.ints("b_batch"), &ac = c.attrs.ints("a_contract"),
              &bc = c.attrs.ints("b_contract");
  const Shape &a = c.in[0].type.shape, &b = c.in[1].type.shape;
  Shape a_free, b_free, inner;
  for (int d = 0; d < a.size(); ++d)
    if (!contains(ab, d) && !contains(ac, d)) a_free.push_back(d);
  for (int d = 0; d < b.size(); ++d)
    if (!contains(bb, d) && !contains(bc, d)) b_free.push_back(d);
  for (int64_t d : ac) inner.push_back(a[static_cast<int>(d)]);
  RefResult r;
  for (Index i(c.out[0].shape); i.valid(); i.next()) {
    Shape ia = a, ib = b;
    int at = 0;
    for (int k = 0; k < ab.size(); ++k, ++at) ia[static_cast<int>(ab[k])] = ib[static_cast<int>(bb[k])] = i[at];
    for (int64_t d : a_free) ia[static_cast<int>(d)] = i[at++];
    for (int64_t d : b_free) ib[static_cast<int>(d)] = i[at++];
    Real sum = 0, magnitude = 0;
    for (Index k(inner); k.valid(); k.next()) {
      for (int d = 0; d < inner.size(); ++d) ia[static_cast<int>(ac[d])] = ib[static_cast<int>(bc[d])] = k[d];
      Real p = c.in[0].v[flat_of(a, ia)] * c.in[1].v[flat_of(b, ib)];
      sum += p;
      magnitude += std::fabs(p);
    }
    push(r, c, sum, magnitude, static_cast<Real>(inner.numel()));
  }
  return {r};
}

std::vector<RefResult> grouped_dot(const RefCall& c) {
  const std::vector<Real>&x = c.in[0].v, &w = c.in[1].v, &offsets = c.in[2].v;
  const int64_t rows = c.in[0].type.shape[0], inner = c.in[0].type.shape[1], columns = c.in[1].type.shape.back();
  const int64_t experts = static_cast<int64_t>(offsets.size()) - 1;
  RefResult r;
  if (c.attrs.get<std::string>("mode") == "rows") {
    for (int64_t i = 0; i < rows; ++i) {
      int64_t e = 0;
      while (e < experts && !(i >= offsets[e] && i < offsets[e + 1])) ++e;
      for (int64_t j = 0; j < columns; ++j) {
        Real sum = 0, magnitude = 0;
        for (int64_t k = 0; e < experts && k < inner; ++k) {
          Real p = x[i * inner + k] * w[(e * inner + k) * columns + j];
          sum += p;
          magnitude += std::fabs(p);
        }
        push(r, c, sum, magnitude, static_cast<Real>(inner));
      }
    }
    return {r};
  }
  for (int64_t e = 0; e < experts; ++e)
    for (int64_t k = 0; k < inner; ++k)
      for (int64_t j = 0; j < columns; ++j) {
        Real sum = 0, magnitude = 0;
        for (auto i = static_cast<int64_t>(offsets[e]); i < static_cast<int64_t>(offsets[e + 1]); ++i) {
          Real p = x[i * inner + k] * w[i * columns + j];
          sum += p;
          magnitude += std::fabs(p);
        }
        push(r, c, sum, magnitude, static_cast<Real>(rows));
      }
  return {r};
}

std::vector<RefResult> conv(const RefCall& c) {
  const Shape &x = c.in[0].type.shape, &w = c.in[1].type.shape;
  const Shape &stride = c.attrs.ints("stride"), &lo = c.attrs.ints("lo"), &dilation = c.attrs.ints("dilation"),
              &interior = c.attrs.ints("interior");
  const int64_t out_each = w[0] / c.attrs.i("groups");
  Shape kernel;
  for (int d = 1; d < w.size(); ++d) kernel.push_back(w[d]);
  RefResult r;
  for (Index i(c.out[0].shape); i.valid(); i.next()) {
    Real sum = 0, magnitude = 0;
    for (Index k(kernel); k.valid(); k.next()) {
      Shape from = i.at(), weight = w;
      from[1] = i[1] / out_each * w[1] + k[0];
      weight[0] = i[1];
      weight[1] = k[0];
      bool inside = true;
      for (int d = 2; d < x.size(); ++d) {
        const int64_t at = i[d] * stride[d - 2] + k[d - 1] * dilation[d - 2] - lo[d - 2], pitch = interior[d - 2] + 1;
        inside = inside && at >= 0 && at % pitch == 0 && at / pitch < x[d];
        from[d] = at / pitch;
        weight[d] = k[d - 1];
      }
      if (!inside) continue;
      const Real p = c.in[0].v[flat_of(x, from)] * c.in[1].v[flat_of(w, weight)];
      sum += p;
      magnitude += std::fabs(p);
    }
    push(r, c, sum, magnitude, static_cast<Real>(kernel.numel()));
  }
  return {r};
}

}  // namespace

std::span<const RefRow> dot_references() {
  static const RefRow rows[] = {{"dot", dot}, {"grouped_dot", grouped_dot}, {"conv", conv}};
  return rows;
}

}  // namespace weft::testing
