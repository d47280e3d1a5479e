// Rounding to number formats: the nearest of all values of the format, which are listed.
#include <algorithm>
#include <cmath>

#include "ops/testing/reference.h"

namespace weft::testing {
namespace {

// The numbers of the format from 0 up. Even positions are even codes.
std::vector<Real> numbers(int e, int m) {
  std::vector<Real> v;
  const int top = e >= 5 ? (1 << e) - 1 : 1 << e, bias = (1 << (e - 1)) - 1;
  for (int i = 0; i < top; ++i)
    for (int j = 0; j < 1 << m; ++j)
      v.push_back(i == 0 ? std::ldexp(static_cast<Real>(j), 1 - bias - m)
                         : std::ldexp(1 + std::ldexp(static_cast<Real>(j), -m), i - bias));
  if (e == 4) v.pop_back();
  return v;
}

Real nearest(const std::vector<Real>& v, bool infinite, Real x) {
  if (std::isnan(x)) return x;
  const Real a = std::fabs(x), most = v.back(), half = (most - v[v.size() - 2]) / 2;
  size_t at = std::lower_bound(v.begin(), v.end(), a) - v.begin();
  Real y = most;
  if (infinite && a >= most + half) {
    y = HUGE_VALL;
  } else if (at < v.size()) {
    if (at > 0 && (a - v[at - 1] < v[at] - a || (a - v[at - 1] == v[at] - a && at % 2 == 1))) --at;
    y = v[at];
  }
  return std::copysign(y, x);
}

std::vector<RefResult> round_to(const RefCall& c) {
  const int e = static_cast<int>(c.attrs.i("exponent_bits")), m = static_cast<int>(c.attrs.i("mantissa_bits"));
  const int64_t block = c.attrs.i("block");
  const std::vector<Real> v = numbers(e, m);
  RefResult r{c.in[0].v, {}};
  const int64_t line = block ? c.in[0].type.shape.back() : c.in[0].numel();
  for (int64_t start = 0; start < c.in[0].numel(); start += line)
    for (int64_t first = 0; first < line; first += block ? block : line) {
      const int64_t end = start + std::min(line, first + (block ? block : line));
      Real most = 0;
      for (int64_t i = start + first; i < end; ++i) most = std::max(most, std::fabs(c.in[0].v[i]));
      Real scale = 1;
      if (block && most > 0) scale = std::exp2(std::floor(std::log2(most)) - std::floor(std::log2(v.back())));
      for (int64_t i = start + first; i < end; ++i)
        r.v[i] = rounded(nearest(v, e >= 5, c.in[0].v[i] / scale) * scale, c.out[0].dtype);
    }
  return {r};
}

}  // namespace

std::span<const RefRow> rounding_references() {
  static const RefRow rows[] = {{"round_to", round_to}};
  return rows;
}

}  // namespace weft::testing
