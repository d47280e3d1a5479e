#include "ops/numerics/number_format.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "framework/base/error.h"

namespace weft::formats {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double greatest_magnitude(std::span<const double> values) {
  double most = 0;
  for (double x : values)
    if (std::isfinite(x)) most = std::max(most, std::fabs(x));
  return most;
}

bool parse_digits(std::string_view text, int* value) {
  if (text.empty() || text.size() > 2) return false;
  *value = 0;
  for (char c : text) {
    if (c < '0' || c > '9') return false;
    *value = 10 * *value + (c - '0');
  }
  return true;
}

}  // namespace

// ---- floats ----

double FloatFormat::max() const {
  const int top_exponent = (1 << exponent) - 1 - (top == TopCodes::kIeee ? 1 : 0) - bias();
  const double last = std::ldexp(1.0, -mantissa);
  return std::ldexp(2.0 - last * (top == TopCodes::kOneNan ? 2 : 1), top_exponent);
}
double FloatFormat::min_normal() const { return std::ldexp(1.0, least_exponent()); }
double FloatFormat::min_subnormal() const { return std::ldexp(1.0, least_exponent() - mantissa); }
double FloatFormat::epsilon() const { return std::ldexp(1.0, -mantissa); }

FloatFormat float_format(int exponent_bits, int mantissa_bits) {
  const TopCodes top = exponent_bits >= 5   ? TopCodes::kIeee
                       : exponent_bits == 4 ? TopCodes::kOneNan
                                            : TopCodes::kNumbers;
  return {exponent_bits, mantissa_bits, top};
}

double rounded(const FloatFormat& f, double x, Overflow overflow) {
  if (std::isnan(x)) return x;
  const double a = std::fabs(x), most = f.max();
  double r = a;
  if (a < 2 * most && a > 0) {
    const int last = std::max(std::ilogb(a), f.least_exponent()) - f.mantissa;
    r = std::ldexp(std::nearbyint(std::ldexp(a, -last)), last);
  }
  if (r > most) {
    r = overflow == Overflow::kNan                                    ? kNan
        : overflow == Overflow::kByFormat && f.top == TopCodes::kIeee ? HUGE_VAL
                                                                      : most;
  }
  return std::copysign(r, x);
}

uint32_t encode(const FloatFormat& f, double x, Overflow overflow) {
  const double r = rounded(f, x, overflow), a = std::fabs(r);
  const uint32_t sign = std::signbit(r) ? 1u << (f.bits() - 1) : 0, ones = (1u << f.exponent) - 1;
  if (std::isnan(r)) {
    if (f.top == TopCodes::kNumbers) return 0;
    return sign | ones << f.mantissa | (f.top == TopCodes::kIeee ? 1u << (f.mantissa - 1) : (1u << f.mantissa) - 1);
  }
  if (std::isinf(r)) return sign | ones << f.mantissa;
  if (a < f.min_normal()) return sign | static_cast<uint32_t>(std::ldexp(a, f.mantissa - f.least_exponent()));
  const int e = std::ilogb(a);
  const auto digits = static_cast<uint32_t>(std::ldexp(a, f.mantissa - e)) - (1u << f.mantissa);
  return sign | static_cast<uint32_t>(e + f.bias()) << f.mantissa | digits;
}

double decode(const FloatFormat& f, uint32_t code) {
  const uint32_t ones = (1u << f.exponent) - 1, all = (1u << f.mantissa) - 1;
  const uint32_t e = code >> f.mantissa & ones, m = code & all;
  double v = e == 0 ? std::ldexp(m, f.least_exponent() - f.mantissa)
                    : std::ldexp((1u << f.mantissa) + m, static_cast<int>(e) - f.bias() - f.mantissa);
  if (f.top == TopCodes::kIeee && e == ones) v = m == 0 ? HUGE_VAL : kNan;
  if (f.top == TopCodes::kOneNan && e == ones && m == all) v = kNan;
  return code >> (f.bits() - 1) & 1 ? -v : v;
}

int block_exponent(const FloatFormat& f, std::span<const double> block) {
  const double most = greatest_magnitude(block);
  return most == 0 ? 0 : std::clamp(std::ilogb(most) - std::ilogb(f.max()), -127, 127);
}

// ---- integers ----

IntegerFormat fixed_point(int whole_bits, int fraction_bits) {
  WEFT_CHECK(
      whole_bits >= 0 && fraction_bits >= 0 && whole_bits + fraction_bits >= 1 && whole_bits + fraction_bits <= 31,
      "fixed_point: Q", whole_bits, ".", fraction_bits, "; need 1 to 31 bits beside the sign");
  return {1 + whole_bits + fraction_bits, std::ldexp(1.0, -fraction_bits), 0};
}

int64_t encode(const IntegerFormat& f, double x) {
  if (std::isnan(x)) return f.zero_point;
  const double q = std::nearbyint(x / f.scale) + static_cast<double>(f.zero_point);
  return static_cast<int64_t>(std::clamp(q, static_cast<double>(f.least()), static_cast<double>(f.greatest())));
}
double decode(const IntegerFormat& f, int64_t code) { return static_cast<double>(code - f.zero_point) * f.scale; }

// ---- the table ----

double NumberFormat::bits() const { return (real ? real->bits() : whole->bits) + (block ? 8.0 / block : 0.0); }

std::span<const NumberFormat> number_formats() {
  static const NumberFormat rows[] = {
      {.name = "FP32", .real = float_format(8, 23)},
      {.name = "TF32", .real = float_format(8, 10), .note = "held in 32 bits; the operands of tensor core products"},
      {.name = "FP16", .real = float_format(5, 10)},
      {.name = "BF16", .real = float_format(8, 7)},
      {.name = "E4M3", .real = float_format(4, 3), .note = "OCP, e4m3fn: one NaN code, no infinity; saturates"},
      {.name = "E5M2", .real = float_format(5, 2), .note = "OCP: as IEEE"},
      {.name = "E2M1", .real = float_format(2, 1), .note = "FP4: no NaN, no infinity; saturates"},
      {.name = "MXFP8", .real = float_format(4, 3), .block = 32, .scale = "E8M0", .note = "elements E4M3"},
      {.name = "MXFP4", .real = float_format(2, 1), .block = 32, .scale = "E8M0", .note = "elements E2M1"},
      {.name = "NVFP4",
       .real = float_format(2, 1),
       .block = 16,
       .scale = "E4M3",
       .tensor_scale = true,
       .note = "elements E2M1; an f32 scale per tensor"},
      {.name = "INT8", .whole = IntegerFormat{8}, .note = "times a scale, less a zero point"},
      {.name = "INT4", .whole = IntegerFormat{4}, .note = "times a scale, less a zero point"},
      {.name = "Q7.8", .whole = fixed_point(7, 8), .note = "fixed point Qm.n: sign, m whole and n fractional bits"},
  };
  return rows;
}

NumberFormat number_format(std::string_view name) {
  std::string names;
  for (const NumberFormat& f : number_formats()) {
    if (f.name == name) return f;
    names += str_cat(f.name, ", ");
  }
  int m = 0, n = 0;
  const size_t dot = name.find('.');
  if (name.starts_with("Q") && dot != name.npos && parse_digits(name.substr(1, dot - 1), &m) &&
      parse_digits(name.substr(dot + 1), &n))
    return {.name = "Qm.n", .whole = fixed_point(m, n)};
  WEFT_CHECK_AS(kNotFound, false, "no number format '", name, "'; need one of ", names, "or Qm.n with numbers m and n");
  return {};
}

double tensor_scale(const NumberFormat& f, std::span<const double> tensor) {
  if (!f.tensor_scale) return 1;
  const double most = greatest_magnitude(tensor) / (f.real->max() * float_format(4, 3).max());
  const double scale = rounded(float_format(8, 23), most);
  return scale == 0 ? 1 : scale;
}

double round_block(const NumberFormat& f, double tensor_scale, std::span<double> block, std::vector<uint32_t>* codes) {
  double scale = 1;
  if (f.scale == "E8M0") {
    scale = std::ldexp(1.0, block_exponent(*f.real, block));
  } else if (f.scale == "E4M3") {
    const double stored = rounded(float_format(4, 3), greatest_magnitude(block) / f.real->max() / tensor_scale);
    scale = stored * tensor_scale;
  }
  for (double& x : block) {
    if (f.whole) {
      const int64_t code = encode(*f.whole, x);
      if (codes) codes->push_back(static_cast<uint32_t>(code));
      x = decode(*f.whole, code);
      continue;
    }
    // A block scale of E4M3 may round to 0: the block's values are too small beside the tensor's.
    const double y = scale == 0 ? std::copysign(0.0, x) : rounded(*f.real, x / scale);
    if (codes) codes->push_back(encode(*f.real, y));
    x = y * scale;
  }
  return scale;
}

void round_values(const NumberFormat& f, std::span<double> values) {
  const double whole = tensor_scale(f, values);
  const size_t step = f.block ? static_cast<size_t>(f.block) : std::max<size_t>(values.size(), 1);
  for (size_t i = 0; i < values.size(); i += step)
    round_block(f, whole, values.subspan(i, std::min(step, values.size() - i)));
}

}  // namespace weft::formats
