// Rounding to number formats, as ops/numerics/number_format.h defines it, in f64: one thread per element, which reads
// its block for the scale.
#include "ops/core/round_to.h"

#include <cmath>

#include "compiler/targets/cuda/ops/families.h"
#include "compiler/targets/cuda/ops/layout.h"
#include "ops/numerics/number_format.h"

namespace weft::cuda {
namespace {

constexpr std::string_view kRound = R"(
static inline int exponent_of(f64 a) { return (int)(w_d_bits(a) >> 52) - 1023; }  // a >= 0
static inline f64 two_to(int e) { return w_d_of_bits((long long)(e + 1023) << 52); }
static inline f64 rounded(f64 x, f64 most) {
  const f64 a = w_abs(x);
  if (a != a) return x;
  f64 r = a;
  if (a < 2 * most && a > 0) {
    const int e = exponent_of(a), last = (e > kLeast ? e : kLeast) - kMantissa;
    r = __builtin_rint(a * two_to(-last)) * two_to(last);
  }
  if (r > most) r = kInfinite ? __builtin_inf() : most;
  return __builtin_copysign(r, x);
}
W_KERNEL {
  W_EACH(int64, i, p.n * p.length);
  const int64 line = i / p.length, k = i % p.length;
  const X* x = p.x + offset_of<kRank>(line, p.shape, p.from);
  int shift = 0;
  if (kScaled) {
    const int64 first = k / p.block * p.block, left = p.length - first, count = left < p.block ? left : p.block;
    f64 top = 0;
    for (int64 j = first; j < first + count; ++j) {
      const f64 a = w_abs((f64)get(x[j * p.x_step]));
      if (w_isfinite(a) && a > top) top = a;
    }
    if (top > 0) shift = exponent_of(top) - kGreatest;
    shift = shift < -127 ? -127 : shift > 127 ? 127 : shift;
  }
  const f64 v = rounded((f64)get(x[k * p.x_step]) * two_to(-shift), p.most) * two_to(shift);
  write(p.y[offset_of<kRank>(line, p.shape, p.to) + k * p.y_step], v);
}
)";

bool make_round_to(const OperationRequest& r, Launches& to) {
  StridedView x = r.in[0], y = r.out[0];
  if (y.numel() == 0) return true;
  for (StridedView* v : {&x, &y})
    if (v->shape.empty()) v->shape = v->strides = Shape{1};
  const int last = y.shape.size() - 1;
  const formats::FloatFormat f =
      formats::float_format(static_cast<int>(r.attrs.i("exponent_bits")), static_cast<int>(r.attrs.i("mantissa_bits")));
  const int64_t block = r.attrs.i("block");
  const Walk lines(without(y.shape, last), {without(x.strides, last), without(y.strides, last)});
  Text t("round_to", true);
  t.type("X", x.dtype).type("Y", y.dtype);
  t.constant("kMantissa", f.mantissa).constant("kLeast", f.least_exponent());
  t.constant("kGreatest", std::ilogb(f.max())).constant("kInfinite", f.top == formats::TopCodes::kIeee);
  t.constant("kScaled", block > 0).functions(kOffsetFunctions).functions(kWriteFunctions);
  t.address("const X* x", operand_address(0)).address("Y* y", result_address(0));
  t.whole("length", y.shape[last]).whole("block", block).real("most", f.max());
  t.index("x_step", x.strides[last]).index("y_step", y.strides[last]);
  lines.declare(t, {"from", "to"});
  to.add(t.step(kRound, blocks_for(lines.n * y.shape[last])));
  return true;
}

}  // namespace

std::span<const MakerRow> rounding_makers() {
  static const MakerRow rows[] = {{&round_to_op, make_round_to}};
  return rows;
}

}  // namespace weft::cuda
