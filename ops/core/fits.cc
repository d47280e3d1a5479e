#include "ops/core/fits.h"

#include <cmath>
#include <limits>

namespace weft::internal {
namespace {

struct FloatRange {
  double largest, rounds_up;  // the largest number, and the least one that is rounded to infinity
};

FloatRange float_range(DType t) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  switch (t) {
    case kFloat32:
      return {0x1.fffffep127, 0x1.ffffffp127};
    case kBFloat16:
      return {0x1.fep127, 0x1.ffp127};
    case kFloat16:
      return {65504, 65520};
    case kFloat8E4M3:
      return {448, 464};  // has no infinity: a larger number becomes 448
    case kFloat8E5M2:
      return {57344, 61440};
    default:
      return {std::numeric_limits<double>::max(), kInfinity};
  }
}

}  // namespace

std::pair<int64_t, int64_t> whole_numbers(DType t) {
  auto around_zero = [](int bits) { return std::pair(-(int64_t{1} << bits), int64_t{1} << bits); };
  switch (t) {
    case kInt64:
      return {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()};
    case kInt32:
      return {std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()};
    case kInt16:
      return {-32768, 32767};
    case kInt8:
      return {-128, 127};
    case kUInt8:
      return {0, 255};
    case kBool:
      return {0, 1};
    case kFloat64:
      return around_zero(53);
    case kFloat32:
      return around_zero(24);
    case kFloat16:
      return around_zero(11);
    case kBFloat16:
      return around_zero(8);
    case kFloat8E4M3:
      return around_zero(4);
    case kFloat8E5M2:
      return around_zero(3);
  }
  return {0, 0};
}

void check_fits(const char* op, const Arg& value, DType t) {
  if (t == kBool) return;
  if (is_floating(t)) {
    const FloatRange range = float_range(t);
    const double v = value.number();
    WEFT_CHECK(!std::isfinite(v) || std::fabs(v) < range.rounds_up, op, ": ", v, " does not fit ", t, "; need ",
               -range.largest, " to ", range.largest);
    return;
  }
  const auto [least, most] = whole_numbers(t);
  if (value.kind() != Arg::kFloat) {
    const int64_t v = value.integer();
    WEFT_CHECK(v >= least && v <= most, op, ": ", v, " does not fit ", t, "; need ", least, " to ", most);
    return;
  }
  // In doubles, the most + 1 of each integer dtype is exact.
  const double v = value.number(), end = t == kInt64 ? 0x1p63 : static_cast<double>(most) + 1;
  WEFT_CHECK(v >= static_cast<double>(least) && v < end, op, ": ", v, " does not fit ", t, "; need ", least, " to ",
             most);
}

}  // namespace weft::internal
