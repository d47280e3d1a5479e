#include "ops/attention/masks/mask_range.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "framework/ir/op_def.h"

namespace weft::internal {
namespace {

using kernels::Pw;
using I128 = __int128;
constexpr int64_t kMin = std::numeric_limits<int64_t>::min(), kMax = std::numeric_limits<int64_t>::max();

int64_t floor_mod(I128 a, int64_t n) {  // n > 0
  const I128 r = a % n;
  return static_cast<int64_t>(r < 0 ? r + n : r);
}
int64_t floor_div(int64_t a, int64_t b) {  // b != 0, and not the smallest value divided by -1
  const int64_t d = a / b;
  return d - (a % b != 0 && (a < 0) != (b < 0));
}
int64_t gcd(int64_t a, int64_t b) { return std::gcd(a, b); }

/// [lo, hi] with the congruence; any value of the dtype if the arithmetic may have wrapped.
MaskRange made(I128 lo, I128 hi, DType dtype, int64_t step = 1, I128 rem = 0) {
  const MaskRange all = MaskRange::any(dtype);
  if (lo < all.lo || hi > all.hi) return all;
  if (lo == hi) return MaskRange::of(static_cast<int64_t>(lo));
  MaskRange r = MaskRange::between(static_cast<int64_t>(lo), static_cast<int64_t>(hi));
  if (step > 1) {
    r.step = step;
    r.rem = floor_mod(rem, step);
    const I128 up = lo + floor_mod(r.rem - lo, step), down = hi - floor_mod(hi - r.rem, step);
    if (up > down) return r;  // no such value: keep the facts that are certain
    r.lo = static_cast<int64_t>(up);
    r.hi = static_cast<int64_t>(down);
    if (r.lo == r.hi) return MaskRange::of(r.lo);
  }
  return r;
}

/// The range of values with these known bits, in a known interval.
MaskRange from_bits(uint64_t known, uint64_t bits, I128 lo, I128 hi, DType dtype) {
  const uint64_t sign = uint64_t{1} << 63;
  bits &= known;
  const uint64_t least = (known & sign) ? bits : (bits | sign);
  const uint64_t most = (known & sign) ? (bits | ~known) : ((bits | ~known) & ~sign);
  lo = std::max<I128>(lo, static_cast<int64_t>(least));
  hi = std::min<I128>(hi, static_cast<int64_t>(most));
  if (lo > hi) return MaskRange::any(dtype);
  MaskRange r = made(lo, hi, dtype);
  if (!r.constant() && !(r.lo == kMin && r.hi == kMax && !known)) {
    r.known = known;
    r.bits = bits;
  }
  return r;
}

int truth(const MaskRange& x) {  // 0, 1, or 2 for either
  if (x.lo > 0 || x.hi < 0) return 1;
  if (x.constant()) return 0;
  return x.contains(0) ? 2 : 1;
}
MaskRange of_truth(int t) { return MaskRange::boolean(t != 1, t != 0); }

bool may_be_equal(const MaskRange& a, const MaskRange& b) {
  if (a.hi < b.lo || b.hi < a.lo) return false;
  const int64_t g = gcd(a.step, b.step);
  if (g > 1 && floor_mod(static_cast<I128>(a.rem) - b.rem, g) != 0) return false;
  if (a.known || b.known || a.constant() || b.constant()) {
    uint64_t ka, va, kb, vb;
    a.all_bits(&ka, &va);
    b.all_bits(&kb, &vb);
    if ((va ^ vb) & ka & kb) return false;
  }
  return true;
}

MaskRange compare(Pw op, const MaskRange& a, const MaskRange& b, bool same) {
  bool can = true, must = false;
  switch (op) {
    case Pw::eq:
    case Pw::ne: {
      can = same || may_be_equal(a, b);
      must = same || (a.constant() && b.constant() && a.lo == b.lo);
      return op == Pw::eq ? MaskRange::boolean(!must, can) : MaskRange::boolean(can, !must);
    }
    case Pw::gt:
      return compare(Pw::lt, b, a, same);
    case Pw::ge:
      return compare(Pw::le, b, a, same);
    case Pw::lt:
      can = !same && a.lo < b.hi;
      must = !same && a.hi < b.lo;
      return MaskRange::boolean(!must, can);
    default:  // le
      can = same || a.lo <= b.hi;
      must = same || a.hi <= b.lo;
      return MaskRange::boolean(!must, can);
  }
}

MaskRange multiply(const MaskRange& a, const MaskRange& b, DType dtype) {
  const I128 c[] = {static_cast<I128>(a.lo) * b.lo, static_cast<I128>(a.lo) * b.hi, static_cast<I128>(a.hi) * b.lo,
                    static_cast<I128>(a.hi) * b.hi};
  // (r + s i)(t + u j) = r t + r u j + t s i + s u i j
  constexpr int64_t kSmall = int64_t{1} << 31;
  int64_t step = 1;
  if (a.step < kSmall && b.step < kSmall && a.rem > -kSmall && a.rem < kSmall && b.rem > -kSmall && b.rem < kSmall)
    step = gcd(gcd(a.step * b.step, a.rem * b.step), b.rem * a.step);
  return made(*std::min_element(c, c + 4), *std::max_element(c, c + 4), dtype, step, static_cast<I128>(a.rem) * b.rem);
}

MaskRange divide(const MaskRange& a, const MaskRange& b, DType dtype) {
  if (b.lo <= 0 && b.hi >= 0) return MaskRange::any(dtype);
  if (a.lo == kMin && b.lo <= -1 && b.hi >= -1) return MaskRange::any(dtype);
  const int64_t c[] = {floor_div(a.lo, b.lo), floor_div(a.lo, b.hi), floor_div(a.hi, b.lo), floor_div(a.hi, b.hi)};
  int64_t step = 1;
  I128 rem = 0;
  if (b.constant() && b.lo > 0 && a.step > 1 && a.step % b.lo == 0) {
    step = a.step / b.lo;
    rem = floor_div(a.rem, b.lo);
  }
  return made(*std::min_element(c, c + 4), *std::max_element(c, c + 4), dtype, step, rem);
}

MaskRange modulo(const MaskRange& a, const MaskRange& b, DType dtype) {
  if (b.lo <= 0 && b.hi >= 0) return MaskRange::any(dtype);
  if (b.hi < 0) return made(static_cast<I128>(b.lo) + 1, 0, dtype);
  if (!b.constant()) {
    if (a.lo >= 0 && a.hi < b.lo) return a;
    return made(0, a.lo >= 0 ? std::min(a.hi, b.hi - 1) : b.hi - 1, dtype);
  }
  const int64_t n = b.lo;
  const int64_t step = gcd(a.step, n);
  if (floor_div(a.lo, n) == floor_div(a.hi, n)) {
    const I128 shift = static_cast<I128>(floor_div(a.lo, n)) * n;
    return made(a.lo - shift, a.hi - shift, dtype, a.step ? a.step : 1, a.rem - shift);
  }
  return made(0, n - 1, dtype, step, a.rem);
}

MaskRange bit_op(Pw op, const MaskRange& a, const MaskRange& b, DType dtype) {
  uint64_t ka, va, kb, vb;
  a.all_bits(&ka, &va);
  b.all_bits(&kb, &vb);
  I128 lo = kMin, hi = kMax;
  const bool positive = a.lo >= 0 && b.lo >= 0;
  switch (op) {
    case Pw::bit_and: {
      const uint64_t zeros = (ka & ~va) | (kb & ~vb), ones = ka & va & kb & vb;
      if (a.lo >= 0) lo = 0, hi = a.hi;
      if (b.lo >= 0) lo = 0, hi = std::min<I128>(hi, b.hi);
      return from_bits(zeros | ones, ones, lo, hi, dtype);
    }
    case Pw::bit_or: {
      const uint64_t ones = (ka & va) | (kb & vb), zeros = ka & ~va & kb & ~vb;
      if (positive) lo = std::max(a.lo, b.lo);
      return from_bits(zeros | ones, ones, lo, hi, dtype);
    }
    default:
      return from_bits(ka & kb, (va ^ vb) & ka & kb, lo, hi, dtype);
  }
}

int width(DType t) { return static_cast<int>(itemsize(t)) * 8; }

MaskRange shift(Pw op, const MaskRange& a, const MaskRange& b, DType dtype) {
  const MaskRange all = MaskRange::any(dtype);
  if (b.lo < 0 || b.hi >= width(dtype)) return all;
  if (op == Pw::shift_left) {
    if (b.hi > 62) return all;
    return multiply(
        a,
        b.constant() ? MaskRange::of(int64_t{1} << b.lo) : MaskRange::between(int64_t{1} << b.lo, int64_t{1} << b.hi),
        dtype);
  }
  if (op == Pw::shift_right_logical && a.lo < 0) return all;
  const int64_t c[] = {a.lo >> b.lo, a.lo >> b.hi, a.hi >> b.lo, a.hi >> b.hi};
  const int64_t lo = *std::min_element(c, c + 4), hi = *std::max_element(c, c + 4);
  if (!b.constant()) return made(lo, hi, dtype);
  uint64_t known, bits;
  a.all_bits(&known, &bits);
  return from_bits(static_cast<uint64_t>(static_cast<int64_t>(known) >> b.lo),
                   static_cast<uint64_t>(static_cast<int64_t>(bits) >> b.lo), lo, hi, dtype);
}

MaskRange negate(const MaskRange& a, DType dtype) {
  return made(-static_cast<I128>(a.hi), -static_cast<I128>(a.lo), dtype, a.step, -static_cast<I128>(a.rem));
}

MaskRange absolute(const MaskRange& a, DType dtype) {
  if (a.lo >= 0) return a;
  if (a.hi <= 0) return negate(a, dtype);
  return made(0, std::max(-static_cast<I128>(a.lo), static_cast<I128>(a.hi)), dtype);
}

}  // namespace

bool MaskRange::contains(int64_t v) const {
  if (v < lo || v > hi) return false;
  if (step > 1 && floor_mod(static_cast<I128>(v) - rem, step) != 0) return false;
  return !((static_cast<uint64_t>(v) ^ bits) & known);
}

void MaskRange::all_bits(uint64_t* known_bits, uint64_t* values) const {
  const uint64_t differ = static_cast<uint64_t>(lo) ^ static_cast<uint64_t>(hi);
  if (!differ) {
    *known_bits = ~uint64_t{0};
    *values = static_cast<uint64_t>(lo);
    return;
  }
  const int leading = std::countl_zero(differ);
  uint64_t k = leading ? ~uint64_t{0} << (64 - leading) : 0, v = static_cast<uint64_t>(lo) & k;
  if (step > 1 && std::has_single_bit(static_cast<uint64_t>(step))) {
    const uint64_t low = static_cast<uint64_t>(step) - 1;
    k |= low;
    v = (v & ~low) | (static_cast<uint64_t>(rem) & low);
  }
  *known_bits = k | known;
  *values = (v & ~known) | (bits & known);
}

bool MaskRange::fits_i32() const {
  const MaskRange all = any(kInt32);
  return lo >= all.lo && hi <= all.hi;
}

MaskRange MaskRange::any(DType dtype) {
  switch (dtype) {
    case kBool:
      return between(0, 1);
    case kInt16:
      return between(std::numeric_limits<int16_t>::min(), std::numeric_limits<int16_t>::max());
    case kInt8:
      return between(-128, 127);
    case kUInt8:
      return between(0, 255);
    case kInt32:
      return between(std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max());
    default:
      return between(kMin, kMax);
  }
}

MaskRange range_of_node(const Graph& g, const Node& n, FunctionRef<const MaskRange&(Value)> of) {
  const DType type = n.outputs[0].dtype;
  const size_t count = n.inputs.size();
  const MaskRange any = MaskRange::any(type);
  const MaskRange* args[3] = {&any, &any, &any};  // range_of() names two operands of every op
  if (count > 3) return any;
  for (size_t i = 0; i < count; ++i) {
    if (is_floating(g.type(n.inputs[i]).dtype)) return any;
    args[i] = &of(n.inputs[i]);
  }
  return range_of(static_cast<kernels::Pw>(n.op->scalar), g.type(n.inputs[count - 1]).dtype, type, args,
                  count > 1 && n.inputs[0] == n.inputs[1]);
}

MaskRange range_join(const MaskRange& a, const MaskRange& b) {
  if (a.constant() && b.constant() && a.lo == b.lo) return a;
  MaskRange r = MaskRange::between(std::min(a.lo, b.lo), std::max(a.hi, b.hi));
  const I128 apart = static_cast<I128>(a.rem) - b.rem;
  if (apart > kMin && apart < kMax) {
    r.step = gcd(gcd(a.step, b.step), static_cast<int64_t>(apart));
    r.rem = r.step > 1 ? floor_mod(a.rem, r.step) : 0;
    if (r.step <= 0) r.step = 1;
  }
  if (a.known || b.known) {
    uint64_t ka, va, kb, vb;
    a.all_bits(&ka, &va);
    b.all_bits(&kb, &vb);
    r.known = ka & kb & ~(va ^ vb);
    r.bits = va & r.known;
  }
  return r;
}

MaskRange range_of_cast(DType from, DType to, const MaskRange& x) {
  if (is_floating(from) || is_floating(to)) return MaskRange::any(to);
  if (to == kBool) return of_truth(truth(x));
  const MaskRange all = MaskRange::any(to);
  return x.lo >= all.lo && x.hi <= all.hi ? x : all;
}

MaskRange range_of(Pw op, DType in_dtype, DType dtype, const MaskRange* const* args, bool same) {
  const MaskRange &a = *args[0], &b = *args[1];  // b: any range for unary ops
  if (op == Pw::where) {
    if (is_floating(dtype)) return MaskRange::any(dtype);
    const int t = truth(a);
    return t == 1 ? b : t == 0 ? *args[2] : range_join(b, *args[2]);
  }
  if (is_floating(in_dtype)) return MaskRange::any(dtype);
  switch (op) {
    case Pw::neg:
      return negate(a, dtype);
    case Pw::abs:
      return absolute(a, dtype);
    case Pw::sign:
      return MaskRange::between(a.lo > 0 ? 1 : a.lo == 0 ? 0 : -1, a.hi > 0 ? 1 : a.hi == 0 ? 0 : -1);
    case Pw::floor:
    case Pw::ceil:
    case Pw::round:
      return a;
    case Pw::relu:
      return a.lo >= 0 ? a : MaskRange::between(0, std::max<int64_t>(a.hi, 0));
    case Pw::square: {
      const MaskRange m = absolute(a, dtype);
      return m.lo < 0 ? MaskRange::any(dtype)
                      : made(static_cast<I128>(m.lo) * m.lo, static_cast<I128>(m.hi) * m.hi, dtype);
    }
    case Pw::logical_not: {
      const int t = truth(a);
      return of_truth(t == 2 ? 2 : 1 - t);
    }
    case Pw::isfinite:
      return MaskRange::of(1);
    case Pw::isnan:
      return MaskRange::of(0);
    case Pw::add:
      return made(static_cast<I128>(a.lo) + b.lo, static_cast<I128>(a.hi) + b.hi, dtype, gcd(a.step, b.step),
                  static_cast<I128>(a.rem) + b.rem);
    case Pw::sub:
      if (same) return MaskRange::of(0);
      return made(static_cast<I128>(a.lo) - b.hi, static_cast<I128>(a.hi) - b.lo, dtype, gcd(a.step, b.step),
                  static_cast<I128>(a.rem) - b.rem);
    case Pw::mul:
      return same ? range_of(Pw::square, in_dtype, dtype, args, false) : multiply(a, b, dtype);
    case Pw::maximum:
      if (a.lo >= b.hi) return a;
      if (b.lo >= a.hi) return b;
      return MaskRange::between(std::max(a.lo, b.lo), std::max(a.hi, b.hi));
    case Pw::minimum:
      if (a.hi <= b.lo) return a;
      if (b.hi <= a.lo) return b;
      return MaskRange::between(std::min(a.lo, b.lo), std::min(a.hi, b.hi));
    case Pw::floor_divide:
      return divide(a, b, dtype);
    case Pw::remainder:
      return modulo(a, b, dtype);
    case Pw::bit_and:
    case Pw::bit_or:
    case Pw::bit_xor:
      if (same && op == Pw::bit_xor) return MaskRange::of(0);
      return same ? a : bit_op(op, a, b, dtype);
    case Pw::shift_left:
    case Pw::shift_right:
    case Pw::shift_right_logical:
      return shift(op, a, b, dtype);
    case Pw::eq:
    case Pw::ne:
    case Pw::lt:
    case Pw::le:
    case Pw::gt:
    case Pw::ge:
      return compare(op, a, b, same);
    case Pw::logical_and: {
      const int x = truth(a), y = truth(b);
      return of_truth(x == 0 || y == 0 ? 0 : x == 1 && y == 1 ? 1 : 2);
    }
    case Pw::logical_or: {
      const int x = truth(a), y = truth(b);
      return of_truth(x == 1 || y == 1 ? 1 : x == 0 && y == 0 ? 0 : 2);
    }
    case Pw::logical_xor: {
      const int x = truth(a), y = truth(b);
      return same ? MaskRange::of(0) : x == 2 || y == 2 ? of_truth(2) : of_truth(x ^ y);
    }
    default:
      return MaskRange::any(dtype);
  }
}

}  // namespace weft::internal
