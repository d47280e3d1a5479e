#include "tools/precision/tensor_ranges.h"

#include <cmath>

#include "compiler/verify/reference.h"
#include "framework/base/str_cat.h"
#include "framework/dispatch/state/state.h"
#include "framework/ir/op_def.h"
#include "ops/core/indexing/view.h"
#include "ops/numerics/number_format.h"

namespace weft::precision {
namespace {

using namespace formats;

bool counted(const TensorType& t) { return is_floating(t.dtype) && t.shape.numel() > 0; }

std::string name_of(const Graph& g, const Node& n) {
  if (is_cell(n)) return g.cells[n.attrs.i("index")]->name;
  std::string name = *n.scope ? str_cat(n.scope, ": ", n.op->name) : std::string(n.op->name);
  if (n.line.line) name += str_cat(" at ", n.line);
  return name;
}

}  // namespace

const char* kind_name(TensorKind kind) {
  constexpr const char* kNames[] = {"parameters", "values", "gradients", "update"};
  return kNames[static_cast<int>(kind)];
}

std::vector<std::string> counted_formats() {
  std::vector<std::string> names;
  for (const NumberFormat& f : number_formats())
    if (f.real && !f.block && f.real->bits() <= 16) names.emplace_back(f.name);
  return names;
}

void Magnitudes::add(const Magnitudes& o) {
  elements += o.elements, zeros += o.zeros, nonfinite += o.nonfinite;
  for (const auto& [e, n] : o.by_exponent) by_exponent[e] += n;
  for (const auto& [name, l] : o.by_format) {
    Losses& mine = by_format[name];
    mine.overflow += l.overflow, mine.underflow += l.underflow, mine.flushed += l.flushed;
  }
}

Magnitudes magnitudes_of(const Tensor& t) {
  struct Bounds {
    Losses* to;
    double over, normal, zero;
  };
  Magnitudes m;
  std::vector<Bounds> bounds;
  for (const std::string& name : counted_formats()) {
    const FloatFormat f = *number_format(name).real;
    // The middle between the greatest number and the next number is the first value that overflows, because the
    // greatest number is odd. In E4M3 it is even, and the middle rounds to it.
    const double last = std::ldexp(1.0, std::ilogb(f.max()) - f.mantissa);
    const double middle = f.max() + last / 2;
    const bool odd = encode(f, f.max()) & 1;
    bounds.push_back(
        {&m.by_format[name], odd ? middle : std::nextafter(middle, HUGE_VAL), f.min_normal(), f.min_subnormal() / 2});
  }
  for (double x : t.detach().to(Device::cpu()).to(kFloat64).to_vector<double>()) {
    const double a = std::fabs(x);
    ++m.elements;
    if (a == 0) {
      ++m.zeros;
    } else if (!std::isfinite(a)) {
      ++m.nonfinite;
    } else {
      ++m.by_exponent[std::ilogb(a)];
      for (const Bounds& b : bounds) {
        b.to->overflow += a >= b.over;
        b.to->underflow += a < b.normal;
        b.to->flushed += a <= b.zero;
      }
    }
  }
  return m;
}

std::vector<TensorRange> tensor_ranges(const Graph& step, std::span<const Tensor> args) {
  std::vector<TensorRange> ranges;
  bool backward = false;  // whether the gradients have begun: later nodes outside the gradients belong to the optimiser
  internal::evaluate(step, args, [&](int32_t id, std::span<const Tensor>, std::span<const Tensor> out) {
    const Node& n = step.node(id);
    backward = backward || n.backward;
    const bool cell = is_cell(n);
    if (is_unwritten_leaf(n) || n.op->view || (n.inputs.empty() && !cell)) return true;
    TensorKind kind = n.backward                  ? TensorKind::kGradient
                      : backward && !n.recomputed ? TensorKind::kUpdate
                                                  : TensorKind::kValue;
    if (cell) kind = step.cells[n.attrs.i("index")]->is_parameter ? TensorKind::kParameter : TensorKind::kUpdate;
    for (const Tensor& t : out)
      if (counted(t.type())) ranges.push_back({kind, name_of(step, n), magnitudes_of(t)});
    return true;
  });
  return ranges;
}

}  // namespace weft::precision
