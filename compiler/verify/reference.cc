#include "compiler/verify/reference.h"

#include <bit>
#include <cstdio>
#include <cstring>

#include "framework/dispatch/capture.h"
#include "framework/dispatch/dispatch.h"
#include "framework/ir/rewrite.h"
#include "ops/kernels/kernels.h"

namespace weft::internal {

Tensor copy_of(const Tensor& t) {
  if (t.device().is_accelerator()) return on_host(t);
  Tensor own = Tensor::empty(t.type());
  if (t.device().type == DeviceType::kMeta || t.numel() == 0) return own;
  kernels::cast_copy(t.view_for_kernel(), own.view_for_kernel());
  return own;
}

Evaluation evaluate(const Graph& g, std::span<const Tensor> args, const Visitor& visit) {
  NoGrad guard;
  Evaluation e = evaluate_nodes(g, args, [&](int32_t id, std::span<const Tensor> in, std::vector<Tensor>& out) {
    const Node& n = g.node(id);
    if (is_argument(n)) {
      out[0] = out[0].detach();
    } else if (n.op->is(kSideEffect) && !n.op->is(kCollective) && n.outputs.size() <= 1) {
      if (!n.outputs.empty()) out = {in[0]};
    } else if (out.empty()) {
      out = dispatch_multi(*n.op, internal::pointers(in), n.attrs, n.line);
    }
    return !visit || visit(id, in, out);
  });
  for (std::vector<Tensor>* values : {&e.outputs, &e.writes})
    for (Tensor& t : *values) t = copy_of(t);
  return e;
}

std::string index_text(int64_t flat, const Shape& shape) {
  Shape at = Shape::filled(shape.size(), 0);
  for (int d = shape.size() - 1; d >= 0; --d) {
    at[d] = flat % shape[d];
    flat /= shape[d];
  }
  return at.to_string();
}

std::string element_text(const Tensor& t, int64_t flat) {
  const Tensor own = copy_of(t);
  const StridedView v{
      static_cast<char*>(own.view_for_kernel().data) + flat * itemsize(own.dtype()), own.dtype(), {}, {}};
  double value = 0;
  kernels::cast_copy(v, {&value, kFloat64, {}, {}});
  char s[40];
  std::snprintf(s, sizeof s, "%.*g", own.dtype() == kFloat64 ? 17 : 9, value);
  return s;
}

int64_t first_difference(const Tensor& got, const Tensor& want) {
  const Tensor a = copy_of(got), b = copy_of(want);
  const char *x = static_cast<const char*>(a.view_for_kernel().data),
             *y = static_cast<const char*>(b.view_for_kernel().data);
  const int64_t size = itemsize(a.dtype()), n = a.numel();
  if (n == 0 || std::memcmp(x, y, n * size) == 0) return -1;
  const auto is_nan = [&](const char* p) {
    double value = 0;
    if (is_floating(a.dtype()))
      kernels::cast_copy({const_cast<char*>(p), a.dtype(), {}, {}}, {&value, kFloat64, {}, {}});
    return (std::bit_cast<uint64_t>(value) & ~(uint64_t{1} << 63)) > uint64_t{0x7ff} << 52;
  };
  for (int64_t i = 0; i < n; ++i) {
    if (std::memcmp(x + i * size, y + i * size, size) == 0) continue;
    if (is_nan(x + i * size) && is_nan(y + i * size)) continue;  // devices differ in which NaN they make
    return i;
  }
  return -1;
}

namespace {

enum NumberClass { kFinite, kInfinite, kNan };
struct Worst {
  NumberClass kind = kFinite;
  int64_t at = -1;
};

// The worst kind of value in a tensor, and its first position.
Worst worst_of(const Tensor& value) {
  Worst w;
  if (!is_floating(value.dtype()) || value.numel() == 0) return w;
  const Tensor t = on_host(value);
  Tensor wide = Tensor::empty({kFloat64, t.device(), t.shape()});
  kernels::cast_copy(t.view_for_kernel(), wide.view_for_kernel());
  const double* x = wide.data<double>();
  for (int64_t i = 0; i < wide.numel(); ++i) {
    const uint64_t bits = std::bit_cast<uint64_t>(x[i]) & ~(uint64_t{1} << 63), inf = uint64_t{0x7ff} << 52;
    NumberClass k = bits > inf ? kNan : bits == inf ? kInfinite : kFinite;
    if (k > w.kind) w = {k, i};
    if (k == kNan) break;
  }
  return w;
}

}  // namespace

void check_same_bits(const Tensor& got, const Tensor& want, const std::string& what) {
  WEFT_CHECK_AS(kInternal, got.dtype() == want.dtype() && got.shape() == want.shape(), "verify: ", what, " is ",
                got.type(), "; the reference gives ", want.type());
  if (got.numel() == 0 || got.device().type == DeviceType::kMeta) return;
  const int64_t at = first_difference(got, want);
  if (at < 0) return;
  internal::fail(Code::kInternal,
                 str_cat("verify: ", what, " differs from the reference first at ", index_text(at, got.shape()),
                         ": got ", element_text(got, at), "; need ", element_text(want, at)));
}

std::string find_nonfinite(const Graph& g, std::span<const Tensor> args) {
  std::string found;
  evaluate(g, args, [&](int32_t id, std::span<const Tensor> in, std::span<const Tensor> out) {
    const Node& n = g.node(id);
    const bool source = is_leaf(n);
    NumberClass before = kFinite;
    for (size_t i = 0; i < out.size(); ++i) {
      const Worst w = worst_of(out[i]);
      if (w.kind == kFinite) continue;
      if (i == 0)
        for (const Tensor& t : in) before = std::max(before, worst_of(t).kind);
      if (w.kind <= before) continue;
      // Infinities written down by the program (masks) are no failure.
      if (w.kind == kInfinite && (n.inputs.empty() || n.op->view)) continue;
      found = str_cat(w.kind == kNan ? "NaN" : "infinity", " first at ", index_text(w.at, out[i].shape()), " of ");
      if (source) {
        const int64_t index = n.attrs.i("index");
        found += is_argument(n) ? str_cat("argument ", index)
                 : is_cell(n)   ? str_cat("cell '", g.cells[index]->name, "'")
                                : str_cat("captured tensor ", index);
      } else {
        found += str_cat("the result of ", n.op->name);
      }
      found += str_cat(", ", out[i].type());
      if (n.line.line) found += str_cat(", at ", n.line);
      if (*n.scope) found += str_cat(", in ", n.scope);
      return false;
    }
    return true;
  });
  return found.empty() ? "no op of this step makes a NaN or an infinity from finite operands" : found;
}

}  // namespace weft::internal
