#include "framework/testing/compare.h"

#include <cmath>
#include <cstring>

namespace weft::testing {

namespace {

struct Format {
  int bits;          // bits of the significand, including the hidden bit
  int min_exponent;  // exponent of the smallest normal value
  double max;
};
Format format_of(DType t) {
  switch (t) {
    case kFloat32:
      return {24, -126, 3.4028234663852886e38};
    case kFloat64:
      return {53, -1022, 1.7976931348623157e308};
    case kBFloat16:
      return {8, -126, 3.3895313892515355e38};
    case kFloat16:
      return {11, -14, 65504};
    default:
      return {0, 0, 0};
  }
}

int64_t wrapped(Real v, DType t) {
  auto i = static_cast<int64_t>(v);
  return t == kBool ? i : with_integer(t, [&]<class T>(T) { return static_cast<int64_t>(static_cast<T>(i)); });
}

std::string place(const Shape& shape, int64_t flat) {
  Shape index = shape;
  for (int d = shape.size() - 1; d >= 0; --d) {
    index[d] = flat % shape[d];
    flat /= shape[d];
  }
  return index.to_string();
}

}  // namespace

double unit_roundoff(DType t) { return is_floating(t) ? std::ldexp(1.0, -format_of(t).bits) : 0; }
double tiny_roundoff(DType t) {
  Format f = format_of(t);
  return f.bits ? std::ldexp(1.0, std::max(f.min_exponent - f.bits, -1074)) : 0;
}
double max_finite(DType t) { return format_of(t).max; }

Real rounded(Real v, DType t) {
  if (t == kBool) return v != 0;
  if (!is_floating(t)) return wrapped(v, t);
  if (!std::isfinite(v) || v == 0) return v;
  Format f = format_of(t);
  int exponent = std::max(std::ilogb(v), f.min_exponent);
  Real ulp = std::ldexp(Real(1), exponent - f.bits + 1);
  Real r = std::nearbyint(v / ulp) * ulp;
  return std::fabs(r) > f.max ? std::copysign(static_cast<Real>(INFINITY), v) : r;
}

std::vector<Real> to_reals(const Tensor& t) {
  if (t.dtype() == kInt64) {
    auto v = t.to_vector<int64_t>();
    return {v.begin(), v.end()};
  }
  auto v = t.to_vector<double>();
  return {v.begin(), v.end()};
}

Tensor from_reals(const std::vector<Real>& values, const TensorType& type) {
  Tensor t = Tensor::empty(type);
  WEFT_CHECK(static_cast<int64_t>(values.size()) == t.numel(), "from_reals: ", values.size(), " values for ", type);
  char* p = static_cast<char*>(t.view_for_kernel().data);
  auto put = [&](auto v) {
    std::memcpy(p, &v, sizeof v);
    p += sizeof v;
  };
  for (Real v : values) {
    switch (type.dtype) {
      case kFloat32:
        put(static_cast<float>(rounded(v, kFloat32)));
        break;
      case kFloat64:
        put(static_cast<double>(v));
        break;
      case kBFloat16:
        put(bfloat16(static_cast<float>(rounded(v, kBFloat16))));
        break;
      case kFloat16:
        put(float16(static_cast<float>(rounded(v, kFloat16))));
        break;
      case kBool:
        put(static_cast<uint8_t>(v != 0));
        break;
      default:
        WEFT_CHECK(is_integral(type.dtype), "from_reals: no values of ", type.dtype);
        with_integer(type.dtype, [&]<class T>(T) { put(static_cast<T>(wrapped(v, type.dtype))); });
    }
  }
  return t;
}

::testing::AssertionResult same_bits(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype())
    return ::testing::AssertionFailure() << "types differ: " << a.type().to_string() << " and " << b.type().to_string();
  std::vector<Real> x = to_reals(a), y = to_reals(b);
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i]) && std::isnan(y[i])) continue;
    if (x[i] != y[i] || std::signbit(x[i]) != std::signbit(y[i]))
      return ::testing::AssertionFailure()
             << "element " << place(a.shape(), i) << " of " << a.type().to_string() << ": " << x[i] << " and " << y[i];
  }
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult within(const Tensor& got, const std::vector<Real>& want, const std::vector<Real>& bound) {
  std::vector<Real> g = to_reals(got);
  if (g.size() != want.size())
    return ::testing::AssertionFailure() << "got " << got.type().to_string() << "; need " << want.size() << " elements";
  int64_t worst = -1;
  Real worst_ratio = 1;
  for (size_t i = 0; i < g.size(); ++i) {
    if (std::isnan(g[i]) && std::isnan(want[i])) continue;
    if (g[i] == want[i]) continue;
    Real error = std::fabs(g[i] - want[i]);
    // A value that rounds to infinity may be infinite.
    if (std::isinf(g[i]) && std::isfinite(want[i]) && std::signbit(g[i]) == std::signbit(want[i]) &&
        std::fabs(want[i]) + bound[i] >= max_finite(got.dtype()))
      continue;
    Real ratio = std::isfinite(error) ? error / bound[i] : static_cast<Real>(INFINITY);
    if (ratio > worst_ratio || std::isnan(ratio)) {
      worst = static_cast<int64_t>(i);
      worst_ratio = std::isnan(ratio) ? static_cast<Real>(INFINITY) : ratio;
    }
  }
  if (worst < 0) return ::testing::AssertionSuccess();
  Real w = want[worst],
       ulp = std::max<Real>(std::fabs(w) * unit_roundoff(got.dtype()) * 2, tiny_roundoff(got.dtype()) * 2);
  return ::testing::AssertionFailure() << "element " << place(got.shape(), worst) << " of " << got.type().to_string()
                                       << ": got " << g[worst] << ", need " << w << " +- " << bound[worst] << " (error "
                                       << std::fabs(g[worst] - w) << " = " << worst_ratio << " bounds"
                                       << (is_floating(got.dtype())
                                               ? str_cat(", about ", static_cast<double>(std::fabs(g[worst] - w) / ulp),
                                                         " ulp")
                                               : "")
                                       << ")";
}

::testing::AssertionResult close(const Tensor& got, const std::vector<Real>& want, DType computed_in,
                                 double roundings) {
  Real scale = 0;
  for (Real w : want)
    if (std::isfinite(w)) scale = std::max(scale, std::fabs(w));
  std::vector<Real> bound;
  for (Real w : want)
    bound.push_back(scale * roundings * unit_roundoff(computed_in) +
                    (std::isfinite(w) ? std::fabs(w) * unit_roundoff(got.dtype()) : 0) + tiny_roundoff(got.dtype()));
  return within(got, want, bound);
}

::testing::AssertionResult close(const Tensor& a, const Tensor& b, DType computed_in, double roundings) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype())
    return ::testing::AssertionFailure() << "types differ: " << a.type().to_string() << " and " << b.type().to_string();
  return close(a, to_reals(b), computed_in, roundings);
}

}  // namespace weft::testing
