#include "compiler/passes/exact_sums.h"

#include <algorithm>

#include "compiler/passes/new_node.h"
#include "compiler/passes/pass.h"
#include "compiler/passes/retrace.h"
#include "framework/autodiff/grad.h"
#include "framework/dispatch/dispatch.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/index.h"
#include "ops/core/indexing/moe.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"
#include "ops/core/products/dot.h"
#include "ops/core/products/exact.h"
#include "ops/core/reductions/reduce.h"

namespace weft {
namespace {

// A composite of float results, to be replaced by its primitives so that its sums become visible. Ops that unfold
// (moving rows to experts and back) stay, because a mesh recognises them by their op; they only add the rows of one
// token, always in the same order. Ops with only integer results are exact already.
bool has_float(const Node& n) {
  return std::any_of(n.outputs.begin(), n.outputs.end(), [](const TensorType& t) { return is_floating(t.dtype); });
}
bool is_composed(const Node& n) {
  return n.op->decompose && !n.op->is(kStructural) && !n.op->is(kUnfolds) && has_float(n);
}

bool has(const Graph& g, bool (*which)(const Node&)) {
  for (int32_t id = 0; id < g.size(); ++id)
    if (which(g.node(id))) return true;
  return false;
}

Ref<Graph> primitives_of(const Graph& g) {
  auto now = make_ref<Graph>(g);
  while (has(*now, is_composed)) {
    auto decomposed = [](const Node& n, std::span<const Tensor> in) {
      return is_composed(n) ? n.op->decompose(n.attrs, in) : std::vector<Tensor>();
    };
    now = retrace(*now, decomposed, true);
    // Reads of the tape are derivatives of a score_mod.
    if (has(*now, [](const Node& n) { return n.op->is(kReadsTape); })) now = expand_grad(*now);
  }
  return now;
}

bool is_zero(const Graph& g, Value v) {
  const Node* const n = constant_behind(g, v);
  if (!n) return false;
  const AttrValue& value = *n->attrs.find("value");
  const auto* real = std::get_if<double>(&value);
  return real ? *real == 0 : n->attrs.i("value") == 0;
}

Tensor finish(const Tensor& digits, DType dtype) { return dispatch(exact_finish_op, {&digits}, {{"dtype", dtype}}); }

// The scattered sum, plus x.
Tensor onto(const Graph& g, const Node& n, const Tensor& x, Tensor digits) {
  if (!is_zero(g, n.inputs[0])) digits = digits + dispatch(exact_sum_op, {&x}, {{"dims", Shape{}}});
  return finish(digits, x.dtype());
}

}  // namespace

Ref<Graph> exact_sums(const Graph& start, PassContext& context) {
  if (!context.facts.exact_sums) return nullptr;
  const Ref<Graph> from = primitives_of(start);
  const Graph& g = *from;
  int sums = 0, products = 0;
  auto exact = [&](const Node& n, std::span<const Tensor> in) -> std::vector<Tensor> {
    if (n.outputs.empty() || !is_floating(n.outputs[0].dtype)) return {};
    const DType t = n.outputs[0].dtype;
    if (n.op == &reduce_sum_op) {
      if (in[0].numel() == n.outputs[0].shape.numel()) return {};  // nothing is added
      ++sums;
      return {finish(dispatch(exact_sum_op, {&in[0]}, n.attrs.without("out_dtype")), t)};
    }
    if (n.op == &dot_op) {
      ++products;
      return {finish(dispatch(exact_dot_op, {&in[0], &in[1]}, n.attrs.without("out_dtype")), t)};
    }
    if (n.op == &grouped_dot_op) {
      ++products;
      const Attrs mode = n.attrs.without("out_dtype");
      return {finish(dispatch(exact_grouped_dot_op, {&in[0], &in[1], &in[2]}, mode), t)};
    }
    if (n.op == &index_add_op) {
      ++sums;
      return {onto(g, n, in[0], dispatch(exact_index_add_op, {&in[1], &in[2]}, {{"rows", in[0].size(0)}}))};
    }
    if (n.op == &scatter_add_op) {
      const int64_t dim = n.attrs.i("dim");
      if (in[1].size(dim) <= 1) return {};  // one term for each element
      ++sums;
      Tensor digits = dispatch(exact_scatter_add_op, {&in[1], &in[2]}, {{"dim", dim}, {"rows", in[0].size(dim)}});
      std::vector<int64_t> beyond{0, 0};  // elements of x that no index can reach
      for (int64_t d = in[0].dim() - 1; d >= 0; --d)
        beyond.insert(beyond.end(), {0, d == dim ? 0 : in[0].size(d) - in[1].size(d)});
      return {onto(g, n, in[0], pad(digits, beyond))};
    }
    if (n.op == &row_dots_op) {
      ++products;
      return {finish(dispatch(exact_row_dots_op, {&in[0], &in[1], &in[2], &in[3], &in[4]}, n.attrs), t)};
    }
    if (n.op == &reduce_prod_op)
      context.note(str_cat("reduce_prod", at_line(n), " multiplies in an order that a mesh may change"));
    return {};
  };
  Ref<Graph> now = retrace(g, exact);
  context.note(str_cat(products, " products and ", sums, " sums of floats do not depend on order"));
  return now;
}

}  // namespace weft
