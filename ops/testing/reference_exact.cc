// Order-free sums in extended precision: digits of each term by division, then added; the finished number by adding the
// digits' bits one by one. All steps are exact.
#include <cmath>

#include "ops/testing/reference.h"

namespace weft::testing {
namespace {

constexpr int kDigits = 7, kWidth = 8, kBits = 40, kLeast = -149;

// The words of each result. Terms are finite here; products are rounded to f64, which affects only f64 operands.
struct Words {
  explicit Words(const RefCall& c) : v(static_cast<size_t>(c.out[0].shape.numel())) {}
  void add(int64_t result, Real x) {
    for (int j = kDigits - 1; j >= 0; --j) {
      const Real unit = std::ldexp(Real{1}, kLeast + kBits * j), d = std::nearbyint(x / unit);
      v[static_cast<size_t>(result * kWidth + j)] += d;
      x -= d * unit;
    }
  }
  std::vector<RefResult> results() { return {{std::move(v), {}}}; }
  std::vector<Real> v;
};

Real product(Real a, Real b) { return static_cast<double>(a) * static_cast<double>(b); }

std::vector<RefResult> exact_sum(const RefCall& c) {
  Words w(c);
  const Shape &shape = c.in[0].type.shape, &dims = c.attrs.ints("dims");
  for (Index i(shape); i.valid(); i.next()) {
    int64_t at = 0;
    for (int d = 0; d < shape.size(); ++d) {
      bool reduced = false;
      for (int64_t r : dims) reduced |= r == d;
      if (!reduced) at = at * shape[d] + i[d];
    }
    w.add(at, c.in[0].v[i.flat()]);
  }
  return w.results();
}

std::vector<RefResult> exact_dot(const RefCall& c) {
  const Shape &ab = c.attrs.ints("a_batch"), &bb = c.attrs.ints("b_batch"), &ac = c.attrs.ints("a_contract"),
              &bc = c.attrs.ints("b_contract");
  const Shape &a = c.in[0].type.shape, &b = c.in[1].type.shape;
  auto contains = [](const Shape& dims, int d) {
    for (int64_t x : dims)
      if (x == d) return true;
    return false;
  };
  Shape a_free, b_free, inner, results;
  for (int64_t d : ab) results.push_back(a[static_cast<int>(d)]);
  for (int d = 0; d < a.size(); ++d)
    if (!contains(ab, d) && !contains(ac, d)) a_free.push_back(d), results.push_back(a[d]);
  for (int d = 0; d < b.size(); ++d)
    if (!contains(bb, d) && !contains(bc, d)) b_free.push_back(d), results.push_back(b[d]);
  for (int64_t d : ac) inner.push_back(a[static_cast<int>(d)]);
  Words w(c);
  for (Index i(results); i.valid(); i.next()) {
    Shape ia = a, ib = b;
    int at = 0;
    for (int k = 0; k < ab.size(); ++k, ++at) ia[static_cast<int>(ab[k])] = ib[static_cast<int>(bb[k])] = i[at];
    for (int64_t d : a_free) ia[static_cast<int>(d)] = i[at++];
    for (int64_t d : b_free) ib[static_cast<int>(d)] = i[at++];
    for (Index k(inner); k.valid(); k.next()) {
      for (int d = 0; d < inner.size(); ++d) ia[static_cast<int>(ac[d])] = ib[static_cast<int>(bc[d])] = k[d];
      w.add(i.flat(), product(c.in[0].v[flat_of(a, ia)], c.in[1].v[flat_of(b, ib)]));
    }
  }
  return w.results();
}

std::vector<RefResult> exact_grouped_dot(const RefCall& c) {
  const std::vector<Real>&x = c.in[0].v, &y = c.in[1].v, &offsets = c.in[2].v;
  const int64_t rows = c.in[0].type.shape[0], inner = c.in[0].type.shape[1], columns = c.in[1].type.shape.back();
  const bool by_rows = c.attrs.get<std::string>("mode") == "rows";
  Words w(c);
  for (int64_t e = 0; e + 1 < static_cast<int64_t>(offsets.size()); ++e)
    for (auto i = static_cast<int64_t>(offsets[e]); i < static_cast<int64_t>(offsets[e + 1]) && i < rows; ++i)
      for (int64_t k = 0; k < inner; ++k)
        for (int64_t j = 0; j < columns; ++j) {
          const Real p = by_rows ? product(x[i * inner + k], y[(e * inner + k) * columns + j])
                                 : product(x[i * inner + k], y[i * columns + j]);
          w.add(by_rows ? i * columns + j : (e * inner + k) * columns + j, p);
        }
  return w.results();
}

std::vector<RefResult> exact_index_add(const RefCall& c) {
  Words w(c);
  const int64_t n = c.in[0].numel(), width = n ? c.in[1].numel() / n : 0;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < width; ++j) w.add(static_cast<int64_t>(c.in[0].v[i]) * width + j, c.in[1].v[i * width + j]);
  return w.results();
}

std::vector<RefResult> exact_scatter_add(const RefCall& c) {
  Words w(c);
  Shape shape = c.in[0].type.shape;
  shape[static_cast<int>(c.attrs.i("dim"))] = c.attrs.i("rows");
  for (Index i(c.in[0].type.shape); i.valid(); i.next()) {
    Shape to = i.at();
    to[static_cast<int>(c.attrs.i("dim"))] = static_cast<int64_t>(c.in[0].v[i.flat()]);
    w.add(flat_of(shape, to), c.in[1].v[i.flat()]);
  }
  return w.results();
}

std::vector<RefResult> exact_row_dots(const RefCall& c) {
  Words w(c);
  const int64_t d = c.in[1].type.shape[1], k = c.attrs.i("k");
  for (size_t s = 0; s < c.in[4].v.size(); ++s)
    for (int64_t j = 0; j < d; ++j)
      w.add(static_cast<int64_t>(s), product(c.in[0].v[static_cast<size_t>(static_cast<int64_t>(c.in[4].v[s]) * d + j)],
                                             c.in[1].v[static_cast<size_t>(static_cast<int64_t>(s) / k * d + j)]));
  return w.results();
}

// Written in binary, one bit per position, from 2^-149 up: two's complement with 400 positions.
std::vector<RefResult> exact_finish(const RefCall& c) {
  constexpr int kPlaces = 400;
  RefResult r;
  const DType t = c.out[0].dtype;
  const int significand = t == kFloat64 ? 53 : t == kFloat32 ? 24 : t == kBFloat16 ? 8 : 11;
  for (int64_t i = 0; i < c.out[0].shape.numel(); ++i) {
    const Real* d = &c.in[0].v[i * kWidth];
    const auto counts = static_cast<int64_t>(d[kDigits]);
    if (counts != 0) {
      const bool plus = counts >> 21 & 0x1fffff, minus = counts & 0x1fffff, nan = counts >> 42 || plus == minus;
      r.v.push_back(nan ? NAN : plus ? INFINITY : -INFINITY);
      continue;
    }
    int64_t place[kPlaces] = {};
    for (int j = 0; j < kDigits; ++j)
      for (int b = 0; b < 62; ++b) {
        const auto v = static_cast<int64_t>(d[j]);
        if ((v < 0 ? -v : v) >> b & 1) place[j * kBits + b] += v < 0 ? -1 : 1;
      }
    auto carry = [&] {  // to 0 and 1; the sign remains
      int64_t over = 0;
      for (int64_t& p : place) {
        p += over;
        over = p >> 1;
        p &= 1;
      }
      return over;
    };
    const bool negative = carry() < 0;
    if (negative) {
      for (int64_t& p : place) p = -p;
      carry();
    }
    int top = kPlaces - 1;
    while (top >= 0 && !place[top]) --top;
    if (top < 0) {
      r.v.push_back(0);
      continue;
    }
    int least = t == kFloat16 ? 149 - 24 : t == kBFloat16 ? 149 - 133 : 0;  // position of the last bit kept
    least = std::max(least, top - significand + 1);
    Real kept = 0;
    for (int p = top; p >= least; --p) kept = 2 * kept + static_cast<Real>(place[p]);
    bool half = least > 0 && place[least - 1], below = false;
    for (int p = 0; p < least - 1; ++p) below |= place[p] != 0;
    if (half && (below || std::fmod(kept, Real{2}) == 1)) kept += 1;
    Real v = std::ldexp(kept, kLeast + least);
    if (v > max_finite(t)) v = INFINITY;
    r.v.push_back(negative ? -v : v);
  }
  return {r};
}

}  // namespace

std::span<const RefRow> exact_references() {
  static const RefRow rows[] = {{"exact_sum", exact_sum},
                                {"exact_dot", exact_dot},
                                {"exact_grouped_dot", exact_grouped_dot},
                                {"exact_index_add", exact_index_add},
                                {"exact_scatter_add", exact_scatter_add},
                                {"exact_row_dots", exact_row_dots},
                                {"exact_finish", exact_finish}};
  return rows;
}

}  // namespace weft::testing
