#include "compiler/loop_ir/prologue.h"

#include <algorithm>
#include <array>

#include "compiler/loop_ir/domain.h"
#include "framework/base/error.h"
#include "framework/ir/rewrite.h"
#include "ops/core/creation.h"
#include "ops/core/products/dot.h"
#include "ops/core/products/dot_product.h"
#include "ops/kernels/products/gemm.h"

namespace weft::loop_ir {
namespace {

using internal::DotProduct;

// Products below the least work are too small to matter.
constexpr int64_t kLeastWork = 1024;
// Lines of the result are further apart than their length, so that no two lines merge into one lane axis.
constexpr int64_t kGap = 16;

StridedView row_major(const TensorType& t) { return {nullptr, t.dtype, t.shape, contiguous_strides(t.shape)}; }

DotProduct product_of(const Node& dot, const TensorType& a, const TensorType& b) {
  return DotProduct(dot.attrs, std::array{row_major(a), row_major(b)});
}

/// The inputs from which `v` is computed, in ascending order of index.
std::vector<int32_t> inputs_of(const Graph& g, Value v) {
  std::vector<bool> seen(g.size());
  std::vector<int32_t> stack{v.node}, found;
  seen[v.node] = true;
  while (!stack.empty()) {
    const Node& n = g.node(stack.back());
    stack.pop_back();
    if (is_argument(n)) found.push_back(static_cast<int32_t>(n.attrs.i("index")));
    if (n.op->is(kReduction) || is_product(n)) throw Unfusable{"an operand of the product is not computed elementwise"};
    for (Value u : n.inputs) {
      if (seen[u.node]) continue;
      seen[u.node] = true;
      stack.push_back(u.node);
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

Prologue prologue_of(const Graph& g, const Node& dot, int operand) {
  const Value v = dot.inputs[operand];
  const TensorType &a = g.type(dot.inputs[0]), &b = g.type(dot.inputs[1]);
  if (std::string why = cannot_fill(dot, a, b, operand); !why.empty()) throw Unfusable{why};
  Prologue p;
  p.type = g.type(v);
  p.inputs = inputs_of(g, v);
  p.body = make_ref<Graph>();
  p.body->stage = g.stage;
  NodeCopier copier(g, *p.body);
  for (int32_t i : p.inputs) copier.map(g.inputs[i], p.body->add_input(g.type(g.inputs[i])));
  p.body->outputs.push_back(copier.bring(v));
  const DotProduct product = product_of(dot, a, b);
  const Shape& s = operand == 0 ? product.a_strides() : product.b_strides();
  const int64_t rows = operand == 0 ? product.m() : product.k(), columns = operand == 0 ? product.k() : product.n();
  p.transposed = s[2] != 1;
  p.line = p.transposed ? rows : columns;
  p.line_stride = p.transposed ? s[2] : s[1];
  p.batch_stride = s[0];
  return p;
}

}  // namespace

std::string cannot_fill(const Node& dot, const TensorType& a, const TensorType& b, int operand) {
  const DType t = a.dtype;
  if (t != kFloat32 && t != kBFloat16 && t != kFloat16)
    return str_cat("a product of ", t, " reads its operands from memory");
  const DotProduct p = product_of(dot, a, b);
  // gemm streams the operands of products of a few rows instead of packing them, in the order of their memory.
  if (p.m() <= kernels::gemm_few_rows(t, p.k()) || p.n() == 1)
    return "a product of few rows or one column streams its operands";
  if (p.m() * p.n() * p.k() <= kLeastWork) return "the product is small";
  const Shape& s = operand == 0 ? p.a_strides() : p.b_strides();
  const bool copies = operand == 0 ? p.copies_a() : p.copies_b();
  const int64_t rows = operand == 0 ? p.m() : p.k(), columns = operand == 0 ? p.k() : p.n();
  if (copies || (s[2] != 1 && s[1] != 1) || rows <= 1 || columns <= 1)
    return "an operand of the product is computed in another order than it is packed";
  return "";
}

std::optional<DotParts> take_apart(const Graph& body) {
  int32_t id = 0;
  while (id < body.size() && body.node(id).op != &dot_op) ++id;
  if (id == body.size()) return {};
  const Node& dot = body.node(id);
  bool any = false;
  for (Value v : dot.inputs) any |= !is_argument(body.node(v));
  if (!any) return {};

  DotParts parts;
  parts.main = make_ref<Graph>();
  parts.main->stage = body.stage;
  NodeCopier copier(body, *parts.main);
  for (Value v : body.inputs) copier.map(v, parts.main->add_input(body.type(v)));
  Node now = dot;
  for (int i = 0; i < 2; ++i) {
    const Value v = dot.inputs[i];
    if (is_argument(body.node(v))) {
      now.inputs[i] = copier.bring(v);
    } else {
      parts.operand[i] = prologue_of(body, dot, i);
      now.inputs[i] = parts.main->add_input(body.type(v));
    }
  }
  copier.map(id, parts.main->add(std::move(now)));
  for (Value v : body.outputs) parts.main->outputs.push_back(copier.bring(v));
  return parts;
}

Lowered lower_prologue(const Prologue& p, std::span<const ValueLayout> in, const LowerOptions& options) {
  ValueLayout out{p.type, contiguous_strides(p.type.shape)};
  for (int64_t& s : out.strides)
    if (s >= p.line) s = s / p.line * (p.line + kGap);
  LowerOptions in_order = options;
  in_order.in_order = true;
  Lowered low = lower_group(*p.body, in, std::array{out}, in_order);
  const BoundOperand& to = low.bound.back();
  bool fits = low.kernel.mode == Mode::kRows && to.output && !low.kernel.reduces() && to.strides.back() == 1 &&
              low.kernel.columns == 0 && low.kernel.partials == 0 && low.kernel.kept == 0;
  int64_t points = low.lanes();
  fits = fits && p.line % points == 0;
  for (int axis = low.kernel.outer_axes() - 1; axis >= 0 && fits; --axis) {
    fits = to.strides[axis] == (points < p.line ? points : points / p.line * (p.line + kGap));
    points *= low.extents[axis];
    fits = fits && (points % p.line == 0 || p.line % points == 0);
  }
  if (!fits || points != p.type.shape.numel())
    throw Unfusable{"an operand of the product is computed in another order than it is packed"};
  return low;
}

}  // namespace weft::loop_ir
