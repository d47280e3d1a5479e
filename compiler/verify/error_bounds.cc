#include "compiler/verify/error_bounds.h"

#include <cmath>
#include <limits>

#include "framework/dispatch/dispatch.h"
#include "framework/dispatch/state/state.h"
#include "framework/ir/op_def.h"
#include "ops/core/core.h"
#include "ops/kernels/kernels.h"

namespace weft::internal {
namespace {

using kernels::Pw;

constexpr double kInf = std::numeric_limits<double>::infinity();
// One f32 op: math.inc states at most 2.5 ulp; the f64 ends are themselves off by far less than the rest.
constexpr double kOpError = 4 * 0x1p-23;

double unit_roundoff(DType t) { return t == kBFloat16 ? 0x1p-8 : t == kFloat16 ? 0x1p-11 : 0; }
double smallest(DType t) { return t == kFloat16 ? 0x1p-24 : 0x1p-133; }  // denormal, of f32 and bf16 the greater
double greatest(DType t) { return t == kFloat16 ? 65504 : t == kBFloat16 ? 0x1.fep127 : 0x1.fffffep127; }

Tensor wide(const Tensor& t) { return t.dtype() == kFloat64 ? t : cast(t, kFloat64); }

/// Where an end is NaN nothing is known.
void settle(BoundedValue& v) {
  const Tensor lost = logical_or(isnan(v.lo), isnan(v.hi));
  v.lo = where(lost, -kInf, v.lo);
  v.hi = where(lost, kInf, v.hi);
}

BoundedValue unknown_value(const Tensor& like) {
  BoundedValue v;
  v.lo = full(like.shape(), -kInf, {.dtype = kFloat64});
  v.hi = full(like.shape(), kInf, {.dtype = kFloat64});
  return v;
}

/// Widens by one op in f32 and one rounding to dtype t, and by `absolute`.
void widen(BoundedValue& v, DType t, const Tensor& absolute = {}) {
  if (t == kFloat64) return;
  const double relative = kOpError + unit_roundoff(t);
  Tensor lo = v.lo - abs(v.lo) * relative - smallest(t), hi = v.hi + abs(v.hi) * relative + smallest(t);
  if (absolute.defined()) lo = lo - absolute, hi = hi + absolute;
  v.lo = where(lt(lo, -greatest(t)), -kInf, lo);
  v.hi = where(gt(hi, greatest(t)), kInf, hi);
  settle(v);
}

/// The same for f32 operations that IEEE rounds to nearest: no result is outside the rounded ends. So a huge number
/// absorbs its addends, as it does in the operation.
void round_ends(BoundedValue& v) {
  v.lo = wide(cast(v.lo, kFloat32)) - smallest(kFloat32);
  v.hi = wide(cast(v.hi, kFloat32)) + smallest(kFloat32);
  settle(v);
}

/// The hull of candidates.
BoundedValue hull(const std::vector<Tensor>& ends) {
  BoundedValue v{{}, ends[0], ends[0], {}};
  Tensor lost = isnan(ends[0]);
  for (const Tensor& e : ends) {
    v.lo = minimum(v.lo, e);
    v.hi = maximum(v.hi, e);
    lost = logical_or(lost, isnan(e));
  }
  settle(v);
  return v;
}

Tensor is_point(const BoundedValue& v) { return eq(v.lo, v.hi); }
Tensor holds_zero(const BoundedValue& v) { return logical_and(le(v.lo, 0.0), ge(v.hi, 0.0)); }

BoundedValue select(const Tensor& c, const BoundedValue& a, const BoundedValue& b) {
  return {{}, where(c, a.lo, b.lo), where(c, a.hi, b.hi), {}};
}

class Evaluator {
 public:
  Evaluator(const Graph& g, double operand_error, bool approximate)
      : g_(g), operand_error_(operand_error), approximate_(approximate), values_(g.size()) {}

  std::vector<BoundedValue> run(std::span<const Tensor> in) {
    for (int32_t id = 0; id < g_.size(); ++id) {
      const Node& n = g_.node(id);
      if (is_argument(n)) {
        values_[id] = exact(in[n.attrs.i("index")]);
        continue;
      }
      SmallVec<const Tensor*, 4> operands;
      for (Value v : n.inputs) operands.push_back(&values_[v.node].eager);
      Tensor eager = dispatch(*n.op, operands, n.attrs, n.line);
      BoundedValue v = evaluate(n, eager);
      v.eager = std::move(eager);
      values_[id] = std::move(v);
    }
    std::vector<BoundedValue> out;
    for (Value v : g_.outputs) out.push_back(values_[v.node]);
    return out;
  }

 private:
  static BoundedValue exact(const Tensor& t) {
    BoundedValue v{t, {}, {}, {}};
    if (is_floating(t.dtype())) v.lo = v.hi = wide(t), settle(v);
    return v;
  }

  const BoundedValue& in(const Node& n, int i) const { return values_[n.inputs[i].node]; }

  BoundedValue evaluate(const Node& n, const Tensor& eager) {
    const bool floating = is_floating(eager.dtype());
    if (n.inputs.empty()) return exact(eager);
    if (n.op->is(kPicks)) return picked(n, eager);
    if (n.op->is(kView) || n.op->is(kAssembles)) return moved(n, eager);
    if (n.op == &cast_op) return converted(n, eager);
    if (n.op->is(kReduction)) return floating ? reduced(n, eager) : uncertain(n, eager);
    if (n.op->is(kProduct) && floating) return product(n, eager);
    if (n.op->is(kPointwise) && n.op->scalar >= 0) {
      const Pw pw = static_cast<Pw>(n.op->scalar);
      if (pw == Pw::where && floating) return chosen(n, eager);
      if (floating) {
        BoundedValue v = pointwise(pw, n);
        v.lo = broadcast_to(v.lo, eager.shape());
        v.hi = broadcast_to(v.hi, eager.shape());
        const bool copies = pw == Pw::neg || pw == Pw::abs || pw == Pw::relu || pw == Pw::maximum ||
                            pw == Pw::minimum || pw == Pw::sign || pw == Pw::floor || pw == Pw::ceil || pw == Pw::round;
        if (approximate_ && eager.dtype() != kFloat64) approximated(pw, n, v);
        const bool nearest =
            eager.dtype() == kFloat32 && (pw == Pw::add || pw == Pw::sub || pw == Pw::mul || pw == Pw::square);
        if (nearest) {
          round_ends(v);
        } else if (!copies) {
          widen(v, eager.dtype());
        }
        return v;
      }
      return uncertain(n, eager, pw);
    }
    return floating ? unknown_value(eager) : uncertain(n, eager);
  }

  /// Ops that only move elements do the same to the ends.
  BoundedValue moved(const Node& n, const Tensor& eager) {
    auto move = [&](auto part) {
      std::vector<Tensor> parts;
      for (int i = 0; i < static_cast<int>(n.inputs.size()); ++i) parts.push_back(part(in(n, i)));
      return dispatch(*n.op, internal::pointers(parts), n.attrs, n.line);
    };
    BoundedValue v;
    if (is_floating(eager.dtype())) {
      v.lo = move([](const BoundedValue& x) { return x.lo; });
      v.hi = move([](const BoundedValue& x) { return x.hi; });
      return v;
    }
    bool any = false;
    for (int i = 0; i < static_cast<int>(n.inputs.size()); ++i) any |= in(n, i).unsure.defined();
    if (any)
      v.unsure = move([](const BoundedValue& x) {
        return x.unsure.defined() ? x.unsure : zeros(x.eager.shape(), {.dtype = kBool});
      });
    return v;
  }

  /// The same element of the ends; unsure where the index is.
  BoundedValue picked(const Node& n, const Tensor& eager) {
    const BoundedValue &x = in(n, 0), &index = in(n, 1);
    const bool floating = is_floating(eager.dtype());
    if (index.unsure.defined()) return floating ? unknown_value(eager) : uncertain(n, eager);
    auto pick = [&](const Tensor& from) { return dispatch(*n.op, {&from, &index.eager}, n.attrs, n.line); };
    BoundedValue v;
    if (floating) {
      v.lo = pick(x.lo);
      v.hi = pick(x.hi);
    } else if (x.unsure.defined()) {
      v.unsure = pick(x.unsure);
    }
    return v;
  }

  BoundedValue converted(const Node& n, const Tensor& eager) {
    const BoundedValue& x = in(n, 0);
    BoundedValue v;
    if (x.lo.defined() && is_floating(eager.dtype())) {
      v.lo = x.lo;
      v.hi = x.hi;
      if (is_16bit(eager.dtype()) || x.eager.dtype() == kFloat64) widen(v, eager.dtype());
    } else if (x.lo.defined()) {
      v.unsure = eager.dtype() == kBool ? logical_and(holds_zero(x), logical_not(is_point(x)))
                                        : ne(cast(x.lo, kInt64), cast(x.hi, kInt64));
    } else if (is_floating(eager.dtype())) {
      v.lo = v.hi = wide(x.eager);
      widen(v, eager.dtype());
      if (x.unsure.defined()) {
        // A bool that is not sure is 0 or 1; a whole number may be anything.
        const bool flag = x.eager.dtype() == kBool;
        v.lo = where(x.unsure, flag ? 0 : -kInf, v.lo);
        v.hi = where(x.unsure, flag ? 1 : kInf, v.hi);
      }
    } else {
      v.unsure = x.unsure;
    }
    return v;
  }

  BoundedValue chosen(const Node& n, const Tensor& eager) {
    const BoundedValue &c = in(n, 0), &a = in(n, 1), &b = in(n, 2);
    const Tensor cond = c.eager;
    BoundedValue v = select(cond, a, b);
    if (c.unsure.defined()) {
      v.lo = where(c.unsure, minimum(a.lo, b.lo), v.lo);
      v.hi = where(c.unsure, maximum(a.hi, b.hi), v.hi);
    }
    v.lo = broadcast_to(v.lo, eager.shape());
    v.hi = broadcast_to(v.hi, eager.shape());
    return v;
  }

  /// Integers and bools: unsure where an operand is, and where comparisons of intervals are.
  BoundedValue uncertain(const Node& n, const Tensor& eager, Pw pw = Pw::kCount) {
    Tensor unsure;
    auto add = [&](const Tensor& t) { unsure = unsure.defined() ? logical_or(unsure, t) : t; };
    const int count = static_cast<int>(n.inputs.size());
    bool floats = true;
    for (int i = 0; i < count; ++i) {
      if (in(n, i).unsure.defined()) add(in(n, i).unsure);
      floats &= in(n, i).lo.defined();
    }
    BoundedValue v;
    if (n.op->is(kReduction) || pw == Pw::kCount) {
      // An unsure element makes all results unsure, and so does a float operand that is not a point everywhere.
      bool all = unsure.defined() && any(unsure).item<bool>();
      for (int i = 0; i < count; ++i)
        if (in(n, i).lo.defined()) all |= !weft::all(is_point(in(n, i))).item<bool>();
      if (all) v.unsure = ones(eager.shape(), {.dtype = kBool});
      return v;
    }
    if (floats && count == 2) {
      const BoundedValue &a = in(n, 0), &b = in(n, 1);
      const bool logical = pw == Pw::logical_and || pw == Pw::logical_or || pw == Pw::logical_xor;
      const Tensor points = logical_and(is_point(a), is_point(b));
      const Tensor meet =
          logical ? logical_or(holds_zero(a), holds_zero(b)) : logical_and(le(a.lo, b.hi), le(b.lo, a.hi));
      add(logical_and(meet, logical_not(points)));
    } else if (floats && count == 1) {
      const BoundedValue& a = in(n, 0);
      const Tensor open =
          pw == Pw::logical_not ? holds_zero(a) : logical_or(logical_not(isfinite(a.lo)), logical_not(isfinite(a.hi)));
      add(logical_and(open, logical_not(is_point(a))));
    }
    if (unsure.defined()) v.unsure = broadcast_to(unsure, eager.shape());
    return v;
  }

  BoundedValue reduced(const Node& n, const Tensor& eager) {
    const BoundedValue& x = in(n, 0);
    BoundedValue v;
    if (!x.lo.defined()) {
      v.lo = v.hi = wide(eager);
      if (x.unsure.defined() && any(x.unsure).item<bool>()) return unknown_value(eager);
      widen(v, eager.dtype());
      return v;
    }
    auto apply = [&](const Tensor& t) {
      Attrs attrs = n.attrs;
      if (attrs.has("out_dtype")) attrs = attrs.with("out_dtype", kFloat64);
      return dispatch(*n.op, {&t}, attrs, n.line);
    };
    const Shape dims = n.attrs.has("dims") ? n.attrs.ints("dims") : Shape{};
    double count = 1;
    for (int64_t d : dims) count *= static_cast<double>(x.eager.shape()[static_cast<int>(d)]);
    const Reduction kind = n.op->reduction;
    if (kind == Reduction::kMax || kind == Reduction::kMin) {
      v.lo = apply(x.lo);
      v.hi = apply(x.hi);
      return v;
    }
    if (kind == Reduction::kSum) {
      v.lo = apply(x.lo);
      v.hi = apply(x.hi);
      // Each of the count - 1 additions is off by 2^-24 of a partial sum, none greater than the sum of magnitudes.
      widen(v, eager.dtype(), apply(maximum(abs(x.lo), abs(x.hi))) * (count * 0x1p-24));
      settle(v);
      return v;
    }
    if (kind == Reduction::kProd) {
      const bool positive = weft::all(ge(x.lo, 0.0)).item<bool>();
      if (!positive) return unknown_value(eager);
      v.lo = apply(x.lo);
      v.hi = apply(x.hi);
      widen(v, eager.dtype(), v.hi * (count * 0x1p-23));
      return v;
    }
    return unknown_value(eager);
  }

  BoundedValue product(const Node& n, const Tensor& eager) {
    auto middle = [](const BoundedValue& x) { return (x.lo + x.hi) * 0.5; };
    auto radius = [](const BoundedValue& x) { return (x.hi - x.lo) * 0.5; };
    const BoundedValue &a = in(n, 0), &b = in(n, 1);
    const Tensor ma = middle(a), mb = middle(b);
    Tensor ra = radius(a), rb = radius(b);
    if (operand_error_ > 0 && a.eager.dtype() == kFloat32)
      ra = ra + (abs(ma) + ra) * operand_error_, rb = rb + (abs(mb) + rb) * operand_error_;
    Attrs attrs = n.attrs;
    if (attrs.has("out_dtype")) attrs = attrs.with("out_dtype", kFloat64);
    const bool grouped = n.op == &grouped_dot_op;
    auto dot = [&](const Tensor& x, const Tensor& y) {
      if (grouped) return dispatch(*n.op, {&x, &y, &in(n, 2).eager}, attrs, n.line);
      return dispatch(*n.op, {&x, &y}, attrs, n.line);
    };
    double count = grouped ? static_cast<double>(a.eager.numel()) : 1;  // more terms than any sum has
    for (int64_t d : grouped ? Shape{} : n.attrs.ints("a_contract"))
      count *= static_cast<double>(a.eager.shape()[static_cast<int>(d)]);
    const Tensor mid = dot(ma, mb), aa = abs(ma) + ra, bb = abs(mb) + rb;
    const Tensor off = dot(aa, rb) + dot(ra, bb) + dot(aa, bb) * ((count + 1) * 0x1p-23);
    BoundedValue v{{}, mid - off, mid + off, {}};
    settle(v);
    widen(v, eager.dtype());
    return v;
  }

  BoundedValue pointwise(Pw pw, const Node& n) {
    auto call = [&](const Tensor& x) { return dispatch(*n.op, {&x}, {}, n.line); };
    auto call2 = [&](const Tensor& x, const Tensor& y) {
      const Tensor a = broadcast_to(x, shape_of(x, y)), b = broadcast_to(y, shape_of(x, y));
      return dispatch(*n.op, {&a, &b}, {}, n.line);
    };
    const BoundedValue& a = in(n, 0);
    BoundedValue v;
    switch (pw) {
      case Pw::exp:
      case Pw::expm1:
      case Pw::log:
      case Pw::log1p:
      case Pw::sqrt:
      case Pw::tanh:
      case Pw::sigmoid:
      case Pw::erf:
      case Pw::floor:
      case Pw::ceil:
      case Pw::round:
      case Pw::relu:
      case Pw::sign:
      case Pw::neg:
      case Pw::rsqrt:
        return hull({call(a.lo), call(a.hi)});  // monotone; outside the domain an end is NaN
      case Pw::reciprocal: {
        v = hull({call(a.lo), call(a.hi)});
        return select(logical_and(holds_zero(a), logical_not(is_point(a))), unknown_value(v.lo), v);
      }
      case Pw::abs:
      case Pw::square:
        v = hull({call(a.lo), call(a.hi)});
        v.lo = where(holds_zero(a), 0.0, v.lo);
        return v;
      case Pw::sin:
      case Pw::cos: {
        // |f(x) - f(middle)| <= |x - middle|.
        const Tensor mid = call((a.lo + a.hi) * 0.5), off = (a.hi - a.lo) * 0.5;
        v = {{}, maximum(mid - off, -1.0), minimum(mid + off, 1.0), {}};
        settle(v);
        return v;
      }
      default:
        break;
    }
    if (n.inputs.size() != 2) return unknown_value(a.eager);
    const BoundedValue& b = in(n, 1);
    switch (pw) {
      case Pw::add:
        v = {{}, call2(a.lo, b.lo), call2(a.hi, b.hi), {}};
        settle(v);
        return v;
      case Pw::sub:
        v = {{}, call2(a.lo, b.hi), call2(a.hi, b.lo), {}};
        settle(v);
        return v;
      case Pw::maximum:
      case Pw::minimum:
        v = {{}, call2(a.lo, b.lo), call2(a.hi, b.hi), {}};
        settle(v);
        return v;
      case Pw::mul:
        return hull({call2(a.lo, b.lo), call2(a.lo, b.hi), call2(a.hi, b.lo), call2(a.hi, b.hi)});
      case Pw::div: {
        v = hull({call2(a.lo, b.lo), call2(a.lo, b.hi), call2(a.hi, b.lo), call2(a.hi, b.hi)});
        const Tensor open = broadcast_to(logical_and(holds_zero(b), logical_not(is_point(b))), v.lo.shape());
        return select(open, unknown_value(v.lo), v);
      }
      case Pw::pow: {
        // Monotone in each operand while the base is positive; for a whole power the ends and 0 are enough.
        v = hull({call2(a.lo, b.lo), call2(a.lo, b.hi), call2(a.hi, b.lo), call2(a.hi, b.hi)});
        const Shape s = v.lo.shape();
        const Tensor points = broadcast_to(logical_and(is_point(a), is_point(b)), s);
        const Tensor whole =
            broadcast_to(logical_and(logical_and(is_point(b), eq(floor(b.lo), b.lo)), ge(b.lo, 0.0)), s);
        v.lo = where(logical_and(whole, broadcast_to(holds_zero(a), s)), minimum(v.lo, 0.0), v.lo);
        const Tensor known = logical_or(logical_or(points, whole), broadcast_to(gt(a.lo, 0.0), s));
        return select(known, v, unknown_value(v.lo));
      }
      default: {
        v = hull({call2(a.lo, b.lo)});
        const Tensor points = broadcast_to(logical_and(is_point(a), is_point(b)), v.lo.shape());
        return select(points, v, unknown_value(v.lo));
      }
    }
  }

  // Adds the errors of the functions of approximations.inc that kOpError does not cover. kOpError covers relative
  // errors of at most 4 ulp.
  void approximated(Pw pw, const Node& n, BoundedValue& v) {
    const BoundedValue& a = in(n, 0);
    // An error of the exponent is a relative error of the result: |x| (2^-24 + 2^-26). Beyond 128 the result is 0 or
    // infinity. sigmoid is near exp below 0.
    auto exponent = [](const Tensor& x) { return minimum(abs(x), 128.0) * 0x1p-23; };
    switch (pw) {
      case Pw::exp:
      case Pw::sigmoid:
        v.lo = v.lo * (1.0 - exponent(a.lo)) - 0x1p-126;
        v.hi = v.hi * (1.0 + exponent(a.hi)) + 0x1p-126;
        break;
      case Pw::log:  // absolute where x is in (0.5, 2)
        v.lo = v.lo - 0x1p-22;
        v.hi = v.hi + 0x1p-22;
        break;
      case Pw::div:
      case Pw::reciprocal: {
        // A reciprocal is off by 1 ulp, which is 2^-21 of a denormal. It may overflow where the quotient does not.
        const BoundedValue& b = in(n, pw == Pw::div ? 1 : 0);
        v.lo = v.lo - abs(v.lo) * 0x1p-21;
        v.hi = v.hi + abs(v.hi) * 0x1p-21;
        const Tensor tiny = logical_and(lt(b.lo, 0x1p-127), gt(b.hi, -0x1p-127));
        const Tensor zero = logical_and(eq(b.lo, 0.0), eq(b.hi, 0.0));
        const Tensor lost = broadcast_to(logical_and(tiny, logical_not(zero)), v.lo.shape());
        v = select(lost, unknown_value(v.lo), v);
        break;
      }
      default:
        return;
    }
    settle(v);
  }

  static Shape shape_of(const Tensor& a, const Tensor& b) { return a.dim() ? a.shape() : b.shape(); }

  const Graph& g_;
  const double operand_error_;
  const bool approximate_;
  std::vector<BoundedValue> values_;
};

}  // namespace

std::vector<BoundedValue> bounded_outputs(const Graph& body, std::span<const Tensor> in, double operand_error,
                                          bool approximate) {
  NoGrad guard;
  return Evaluator(body, operand_error, approximate).run(in);
}

int64_t first_outside(const Tensor& got, const BoundedValue& want) {
  NoGrad guard;
  Tensor bad;
  if (want.lo.defined()) {
    const Tensor x = wide(got);
    const Tensor agree =
        logical_or(logical_and(isnan(got), isnan(want.eager)), logical_and(le(want.lo, x), le(x, want.hi)));
    const Tensor lost = logical_and(isnan(got), logical_or(eq(want.lo, -kInf), eq(want.hi, kInf)));
    bad = logical_not(logical_or(agree, lost));
  } else {
    bad = ne(got, want.eager);
    if (want.unsure.defined()) bad = logical_and(bad, logical_not(want.unsure));
  }
  const Tensor flat = contiguous(bad.reshape({-1}));
  const auto values = flat.to_vector<bool>();
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i]) return static_cast<int64_t>(i);
  return -1;
}

}  // namespace weft::internal
