#include "tools/precision/op_errors.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "ops/numerics/number_format.h"

namespace weft::precision {
namespace {

using formats::NumberFormat;
using Values = std::vector<double>;
/// Applied to the result of each scalar operation.
using Rounding = std::function<double(double)>;

double sum_of(const Values& x, const Rounding& r) {
  double s = 0;
  for (double v : x) s = r(s + v);
  return s;
}

struct RoundedOp {
  const char* name;
  size_t length;  // length of each operand
  Values (*run)(const Values& a, const Values& b, const Rounding& r);
};

Values softmax(const Values& x, const Values&, const Rounding& r) {
  const double most = *std::max_element(x.begin(), x.end());
  Values e;
  for (double v : x) e.push_back(r(std::exp(r(v - most))));
  const double total = sum_of(e, r);
  for (double& v : e) v = r(v / total);
  return e;
}

Values normed(const Values& x, const Rounding& r, bool center) {
  const auto n = static_cast<double>(x.size());
  Values y = x, squares;
  if (center) {
    const double mean = r(sum_of(x, r) / n);
    for (double& v : y) v = r(v - mean);
  }
  for (double v : y) squares.push_back(r(v * v));
  const double scale = r(1 / r(std::sqrt(r(r(sum_of(squares, r) / n) + 1e-5))));
  for (double& v : y) v = r(v * scale);
  return y;
}

const RoundedOp kOps[] = {
    {"product", 256,
     [](const Values& a, const Values& b, const Rounding& r) {
       Values y;
       for (size_t i = 0; i < a.size(); ++i) y.push_back(r(a[i] * b[i]));
       return y;
     }},
    {"sum", 256, [](const Values& a, const Values&, const Rounding& r) { return Values{sum_of(a, r)}; }},
    {"squares", 256,
     [](const Values& a, const Values&, const Rounding& r) {
       Values squares;
       for (double v : a) squares.push_back(r(v * v));
       return Values{sum_of(squares, r)};
     }},
    {"dot", 256,
     [](const Values& a, const Values& b, const Rounding& r) {
       double s = 0;
       for (size_t i = 0; i < a.size(); ++i) s = r(s + r(a[i] * b[i]));
       return Values{s};
     }},
    {"exp", 256,
     [](const Values& a, const Values&, const Rounding& r) {
       Values y;
       for (double v : a) y.push_back(r(std::exp(v)));
       return y;
     }},
    {"gelu", 256,
     [](const Values& a, const Values&, const Rounding& r) {
       Values y;
       for (double v : a) y.push_back(r(r(0.5 * v) * r(1 + r(std::erf(r(v * std::sqrt(0.5)))))));
       return y;
     }},
    {"softmax", 256, softmax},
    {"RMS norm", 256, [](const Values& a, const Values&, const Rounding& r) { return normed(a, r, false); }},
    {"layer norm", 256, [](const Values& a, const Values&, const Rounding& r) { return normed(a, r, true); }},
};

struct Errors {
  Values relative;
  int64_t bad = 0, all = 0;
  void add(const Values& got, const Values& want) {
    for (size_t i = 0; i < got.size(); ++i, ++all) {
      if (!std::isfinite(got[i])) {
        ++bad;
      } else if (want[i] != 0) {
        relative.push_back(std::fabs(got[i] - want[i]) / std::fabs(want[i]));
      }
    }
  }
  ErrorRange range() { return {at(0.5), at(0.99), at(1)}; }

 private:
  double at(double share) {
    if (relative.empty()) return 0;
    const auto place = static_cast<size_t>(share * static_cast<double>(relative.size() - 1));
    std::nth_element(relative.begin(), relative.begin() + static_cast<std::ptrdiff_t>(place), relative.end());
    return relative[place];
  }
};

}  // namespace

std::vector<OpError> op_errors(int64_t repeats, uint64_t seed) {
  std::vector<OpError> rows;
  const Rounding none = [](double v) { return v; };
  for (const RoundedOp& op : kOps)
    for (const NumberFormat& f : formats::number_formats()) {
      if (!f.real) continue;
      std::mt19937_64 random(seed);  // the same operands for each format
      std::normal_distribution<double> normal;
      const Rounding each = f.block ? none : [&f](double v) { return formats::rounded(*f.real, v); };
      Errors wide, narrow;
      for (int64_t k = 0; k < repeats; ++k) {
        Values a(op.length), b(op.length);
        for (Values* v : {&a, &b})
          for (double& x : *v) x = normal(random);
        const Values want = op.run(a, b, none);
        formats::round_values(f, a), formats::round_values(f, b);
        Values got = op.run(a, b, none);
        formats::round_values(f, got);
        wide.add(got, want);
        if (!f.block) narrow.add(op.run(a, b, each), want);
      }
      rows.push_back({op.name, std::string(f.name), wide.range()});
      if (f.block) continue;
      rows.back().narrow = narrow.range();
      rows.back().overflowed = static_cast<double>(narrow.bad) / static_cast<double>(narrow.all);
    }
  return rows;
}

}  // namespace weft::precision
