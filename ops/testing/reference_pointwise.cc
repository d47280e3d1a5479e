// Elementwise ops by <cmath> in extended precision. A row's error is in ulp of f32, as stated for the function in
// ops/numerics/math.inc (half an ulp for a single IEEE operation, 0 for an exact one).
#include <cmath>
#include <limits>

#include "framework/dispatch/dispatch.h"
#include "ops/testing/reference.h"

namespace weft::testing {
namespace {

using Fn = Real (*)(const Real* x, DType t);

struct ReferenceOp {
  std::string_view op;
  double ulp;
  Fn fn;
};

int64_t integer(Real v) { return static_cast<int64_t>(v); }
int64_t bits_of(DType t) { return itemsize(t) * 8; }

// a - b floor(a / b) with the exact quotient.
Real modulo(Real a, Real b) {
  Real r = std::fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
Real greater(Real a, Real b) { return std::isnan(a) || a > b ? a : b; }
Real lesser(Real a, Real b) { return std::isnan(a) || a < b ? a : b; }

Real shifted_right(Real a, Real b, DType t, bool logical) {
  int64_t n = integer(b), v = integer(a);
  if (!logical || t == kUInt8) {
    if (n < 0 || n >= bits_of(t)) return v < 0 ? -1 : 0;
    return static_cast<Real>(v >> n);
  }
  if (n < 0 || n >= bits_of(t)) return 0;
  if (t == kInt32) return static_cast<Real>(static_cast<int32_t>(static_cast<uint32_t>(v) >> n));
  if (t == kInt16) return static_cast<Real>(static_cast<int16_t>(static_cast<uint16_t>(v) >> n));
  if (t == kInt8) return static_cast<Real>(static_cast<int8_t>(static_cast<uint8_t>(v) >> n));
  return static_cast<Real>(static_cast<int64_t>(static_cast<uint64_t>(v) >> n));
}

const ReferenceOp kRows[] = {
    {"neg", 0, [](const Real* x, DType) { return -x[0]; }},
    {"abs", 0, [](const Real* x, DType) { return std::fabs(x[0]); }},
    {"sign", 0, [](const Real* x, DType) { return Real((x[0] > 0) - (x[0] < 0)); }},
    {"exp", 1.5, [](const Real* x, DType) { return std::exp(x[0]); }},
    {"exp2", 1.5, [](const Real* x, DType) { return std::exp2(x[0]); }},
    {"expm1", 2, [](const Real* x, DType) { return std::expm1(x[0]); }},
    {"log", 1, [](const Real* x, DType) { return std::log(x[0]); }},
    {"log2", 1.5, [](const Real* x, DType) { return std::log2(x[0]); }},
    {"log1p", 1.5, [](const Real* x, DType) { return std::log1p(x[0]); }},
    {"sqrt", 0.5, [](const Real* x, DType) { return std::sqrt(x[0]); }},
    {"rsqrt", 1.5, [](const Real* x, DType) { return 1 / std::sqrt(x[0]); }},
    {"sin", 2, [](const Real* x, DType) { return std::sin(x[0]); }},
    {"cos", 2, [](const Real* x, DType) { return std::cos(x[0]); }},
    {"tanh", 2, [](const Real* x, DType) { return std::tanh(x[0]); }},
    {"tanh_fast", 6, [](const Real* x, DType) { return std::tanh(x[0]); }},
    {"sigmoid", 2.5, [](const Real* x, DType) { return 1 / (1 + std::exp(-x[0])); }},
    {"erf", 2, [](const Real* x, DType) { return std::erf(x[0]); }},
    {"floor", 0, [](const Real* x, DType) { return std::floor(x[0]); }},
    {"ceil", 0, [](const Real* x, DType) { return std::ceil(x[0]); }},
    {"round", 0, [](const Real* x, DType) { return std::nearbyint(x[0]); }},
    {"relu", 0, [](const Real* x, DType) { return x[0] < 0 ? 0 : x[0]; }},
    {"reciprocal", 0.5, [](const Real* x, DType) { return 1 / x[0]; }},
    {"square", 0.5, [](const Real* x, DType) { return x[0] * x[0]; }},
    {"logical_not", 0, [](const Real* x, DType) { return Real(x[0] == 0); }},
    {"isfinite", 0, [](const Real* x, DType) { return Real(std::isfinite(x[0])); }},
    {"isnan", 0, [](const Real* x, DType) { return Real(std::isnan(x[0])); }},
    {"add", 0.5, [](const Real* x, DType) { return x[0] + x[1]; }},
    {"sub", 0.5, [](const Real* x, DType) { return x[0] - x[1]; }},
    {"mul", 0.5, [](const Real* x, DType) { return x[0] * x[1]; }},
    {"div", 0.5, [](const Real* x, DType) { return x[0] / x[1]; }},
    {"pow", 1, [](const Real* x, DType) { return std::pow(x[0], x[1]); }},
    {"maximum", 0, [](const Real* x, DType) { return greater(x[0], x[1]); }},
    {"minimum", 0, [](const Real* x, DType) { return lesser(x[0], x[1]); }},
    {"remainder", 1, [](const Real* x, DType) { return modulo(x[0], x[1]); }},
    {"floor_divide", 0.5, [](const Real* x, DType) { return std::nearbyint((x[0] - modulo(x[0], x[1])) / x[1]); }},
    {"bit_and", 0, [](const Real* x, DType) { return Real(integer(x[0]) & integer(x[1])); }},
    {"bit_or", 0, [](const Real* x, DType) { return Real(integer(x[0]) | integer(x[1])); }},
    {"bit_xor", 0, [](const Real* x, DType) { return Real(integer(x[0]) ^ integer(x[1])); }},
    {"shift_left", 0,
     [](const Real* x, DType t) {
       int64_t n = integer(x[1]);
       return n < 0 || n >= bits_of(t) ? Real(0) : rounded(Real(integer(x[0]) * (int64_t{1} << n)), t);
     }},
    {"shift_right", 0, [](const Real* x, DType t) { return shifted_right(x[0], x[1], t, false); }},
    {"shift_right_logical", 0, [](const Real* x, DType t) { return shifted_right(x[0], x[1], t, true); }},
    {"eq", 0, [](const Real* x, DType) { return Real(x[0] == x[1]); }},
    {"ne", 0, [](const Real* x, DType) { return Real(x[0] != x[1]); }},
    {"lt", 0, [](const Real* x, DType) { return Real(x[0] < x[1]); }},
    {"le", 0, [](const Real* x, DType) { return Real(x[0] <= x[1]); }},
    {"gt", 0, [](const Real* x, DType) { return Real(x[0] > x[1]); }},
    {"ge", 0, [](const Real* x, DType) { return Real(x[0] >= x[1]); }},
    {"logical_and", 0, [](const Real* x, DType) { return Real(x[0] != 0 && x[1] != 0); }},
    {"logical_or", 0, [](const Real* x, DType) { return Real(x[0] != 0 || x[1] != 0); }},
    {"logical_xor", 0, [](const Real* x, DType) { return Real((x[0] != 0) != (x[1] != 0)); }},
    {"where", 0, [](const Real* x, DType) { return x[0] != 0 ? x[1] : x[2]; }},
};

std::vector<RefResult> pointwise(const RefCall& c) {
  const ReferenceOp* row = nullptr;
  for (const ReferenceOp& r : kRows)
    if (r.op == c.op.name) row = &r;
  const DType out = c.out[0].dtype, computed = c.computed();
  RefResult r;
  const int64_t n = c.out[0].shape.numel();
  // Functions of f64 come from the C library: 1 ulp each, a few of them at most.
  const double ulp = computed == kFloat64 && row->ulp > 0.5 ? row->ulp + 2 : row->ulp;
  for (int64_t i = 0; i < n; ++i) {
    Real x[3];
    for (size_t k = 0; k < c.in.size(); ++k) x[k] = c.in[k].v[c.in[k].rank() == 0 ? 0 : i];
    Real y = row->fn(x, c.in.back().type.dtype);
    if (!is_floating(out)) y = rounded(y, out);
    r.v.push_back(y);
    const Real error = std::isfinite(y) ? ulp * 2 * unit_roundoff(computed) * std::fabs(y) : 0;
    r.bound.push_back(rounding_bound(y, error, computed, out));
  }
  return {r};
}

// The row's own scalar expression on f64 (integers unchanged), one element at a time.
Real by_row(const RefCall& c, const Real* x) {
  std::vector<Tensor> operands;
  SmallVec<const Tensor*, 3> in;
  for (size_t k = 0; k < c.in.size(); ++k) {
    const DType t = c.in[k].type.dtype;
    Tensor one = Tensor::empty({is_floating(t) ? kFloat64 : t, Device::cpu(), {}});
    void* at = one.view_for_kernel().data;
    if (is_floating(t)) {
      *static_cast<double*>(at) = static_cast<double>(x[k]);
    } else if (t == kInt64) {
      *static_cast<int64_t*>(at) = integer(x[k]);
    } else if (t == kInt32) {
      *static_cast<int32_t*>(at) = static_cast<int32_t>(x[k]);
    } else {
      *static_cast<uint8_t*>(at) = static_cast<uint8_t>(x[k]);
    }
    operands.push_back(one);
  }
  for (const Tensor& t : operands) in.push_back(&t);
  return to_reals(dispatch(c.op, TensorPtrs(in), c.attrs))[0];
}

// For a new row of pointwise.inc without a written reference: checks dtypes, vectors, tails and layouts against the
// scalar f64 path. The bound: each operation rounds its operands and its result by half an ulp, so flops_per_point
// roundings of the value and of its change with its operands.
std::vector<RefResult> derived_pointwise(const RefCall& c) {
  const DType out = c.out[0].dtype, computed = c.computed();
  RefResult r;
  for (int64_t i = 0; i < c.out[0].shape.numel(); ++i) {
    Real x[3];
    for (size_t k = 0; k < c.in.size(); ++k) x[k] = c.in[k].v[c.in[k].rank() == 0 ? 0 : i];
    Real y = by_row(c, x), moves = std::fabs(y);
    constexpr Real kStep = 0x1p-20L;
    for (size_t k = 0; k < c.in.size() && is_floating(out); ++k) {
      const Real saved = x[k];
      x[k] = saved * (1 + kStep);
      const Real moved = std::fabs(by_row(c, x) - y) / kStep;
      if (std::isfinite(moved)) moves += moved;
      x[k] = saved;
    }
    if (!is_floating(out)) y = rounded(y, out);
    r.v.push_back(y);
    const Real error =
        is_floating(out) && std::isfinite(y) ? c.op.flops_per_point * unit_roundoff(computed) * moves : 0;
    r.bound.push_back(rounding_bound(y, error, computed, out));
  }
  return {r};
}

std::vector<RefResult> cast(const RefCall& c) {
  RefResult r;
  for (Real v : c.in[0].v) r.v.push_back(rounded(v, c.out[0].dtype));
  return {r};
}

}  // namespace

RefFn derived_reference() { return derived_pointwise; }

std::span<const RefRow> pointwise_references() {
  static const auto all = [] {
    std::vector<RefRow> rows;
    for (const ReferenceOp& r : kRows) rows.push_back({r.op, pointwise});
    rows.push_back({"cast", cast});
    return rows;
  }();
  return all;
}

}  // namespace weft::testing
