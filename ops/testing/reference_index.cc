// Elements selected by run-time integers, and sorting, as plain loops.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/testing/reference.h"

namespace weft::testing {
namespace {

int64_t at(const RefTensor& t, int64_t i) { return static_cast<int64_t>(t.v[i]); }

std::vector<RefResult> gather(const RefCall& c) {
  const int dim = static_cast<int>(c.attrs.i("dim"));
  RefResult r;
  for (Index i(c.out[0].shape); i.valid(); i.next()) {
    Shape from = i.at();
    from[dim] = at(c.in[1], i.flat());
    r.v.push_back(c.in[0].v[flat_of(c.in[0].type.shape, from)]);
  }
  return {r};
}

std::vector<RefResult> index_select(const RefCall& c) {
  const int dim = static_cast<int>(c.attrs.i("dim"));
  RefResult r;
  for (Index i(c.out[0].shape); i.valid(); i.next()) {
    Shape from = i.at();
    from[dim] = at(c.in[1], i[dim]);
    r.v.push_back(c.in[0].v[flat_of(c.in[0].type.shape, from)]);
  }
  return {r};
}

// Sums, with the number and magnitude of their terms.
struct Sums {
  std::vector<Real> value, magnitude, terms;
  explicit Sums(const std::vector<Real>& start) : value(start), terms(start.size(), 0) {
    for (Real v : start) magnitude.push_back(std::fabs(v));
  }
  void add(int64_t i, Real v) {
    value[i] += v;
    magnitude[i] += std::fabs(v);
    ++terms[i];
  }
  /// The result if sums are stored in `kept`: each addition rounds to it.
  RefResult result(const RefCall& c, DType kept) {
    RefResult r{value, {}};
    for (size_t i = 0; i < value.size(); ++i) {
      if (!is_floating(c.out[0].dtype)) r.v[i] = rounded(value[i], c.out[0].dtype);
      r.bound.push_back(
          rounding_bound(value[i], terms[i] * unit_roundoff(kept) * magnitude[i], c.computed(), c.out[0].dtype));
    }
    return r;
  }
};

std::vector<RefResult> scatter_add(const RefCall& c) {
  const int dim = static_cast<int>(c.attrs.i("dim"));
  Sums sums(c.in[0].v);
  for (Index i(c.in[1].type.shape); i.valid(); i.next()) {
    Shape to = i.at();
    to[dim] = at(c.in[1], i.flat());
    sums.add(flat_of(c.out[0].shape, to), c.in[2].v[flat_of(c.in[2].type.shape, i.at())]);
  }
  return {sums.result(c, c.out[0].dtype)};  // in place, in the result's dtype
}

std::vector<RefResult> index_copy(const RefCall& c) {
  std::vector<Real> y = c.in[0].v;
  for (Index i(c.in[2].type.shape); i.valid(); i.next()) {
    Shape to = i.at();
    to[0] = at(c.in[1], i[0]);
    y[flat_of(c.out[0].shape, to)] = c.in[2].v[i.flat()];
  }
  return {{y, {}}};
}

std::vector<RefResult> index_add(const RefCall& c) {
  Sums sums(c.in[0].v);
  for (Index i(c.in[2].type.shape); i.valid(); i.next()) {
    Shape to = i.at();
    to[0] = at(c.in[1], i[0]);
    sums.add(flat_of(c.out[0].shape, to), c.in[2].v[i.flat()]);
  }
  return {sums.result(c, c.computed())};
}

std::vector<RefResult> dynamic_slice(const RefCall& c) {
  RefResult r;
  for (Index i(c.out[0].shape); i.valid(); i.next()) {
    Shape from = i.at();
    for (int d = 0; d < from.size(); ++d) from[d] += at(c.in[1 + d], 0);
    r.v.push_back(c.in[0].v[flat_of(c.in[0].type.shape, from)]);
  }
  return {r};
}

std::vector<RefResult> dynamic_update_slice(const RefCall& c) {
  RefResult r{c.in[0].v, {}};
  for (Index i(c.in[1].type.shape); i.valid(); i.next()) {
    Shape to = i.at();
    for (int d = 0; d < to.size(); ++d) to[d] += at(c.in[2 + d], 0);
    r.v[flat_of(c.out[0].shape, to)] = c.in[1].v[i.flat()];
  }
  return {r};
}

// The first elements of each sorted line along dim, in order.
std::vector<RefResult> ordered(const RefCall& c, bool descending) {
  const int dim = static_cast<int>(c.attrs.i("dim"));
  const Shape& shape = c.in[0].type.shape;
  RefResult values, indices;
  for (Index i(c.out[0].shape); i.valid(); i.next()) {
    Shape from = i.at();
    std::vector<Real> line;
    for (int64_t k = 0; k < (shape.empty() ? 1 : shape[dim]); ++k) {
      if (!shape.empty()) from[dim] = k;
      line.push_back(c.in[0].v[flat_of(shape, from)]);
    }
    std::vector<int64_t> order(line.size());
    std::iota(order.begin(), order.end(), 0);
    // NaN is the largest value.
    auto less = [](Real a, Real b) { return std::isnan(b) ? !std::isnan(a) : a < b; };
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return descending ? less(line[b], line[a]) : less(line[a], line[b]);
    });
    const int64_t place = order[shape.empty() ? 0 : i[dim]];
    values.v.push_back(line[place]);
    indices.v.push_back(static_cast<Real>(place));
  }
  return {values, indices};
}

std::vector<RefResult> sort(const RefCall& c) { return ordered(c, c.attrs.b("descending", false)); }
std::vector<RefResult> topk(const RefCall& c) { return ordered(c, c.attrs.b("largest", true)); }

}  // namespace

std::span<const RefRow> index_references() {
  static const RefRow rows[] = {
      {"gather", gather},
      {"index_select", index_select},
      {"scatter_add", scatter_add},
      {"index_add", index_add},
      {"index_copy", index_copy},
      {"dynamic_slice", dynamic_slice},
      {"dynamic_update_slice", dynamic_update_slice},
      {"sort", sort},
      {"topk", topk},
  };
  return rows;
}

}  // namespace weft::testing
