#include "compiler/loop_ir/fused.h"

#include <algorithm>

#include "framework/dispatch/capture.h"
#include "framework/dispatch/interpreter.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/index.h"
#include "ops/core/indexing/view.h"
#include "ops/core/record_parts.h"
#include "ops/kernels/kernels.h"

namespace weft::loop_ir {
namespace {

Types infer_fused(const InferCall& c) {
  const Graph& body = *c.attrs.get<Ref<Graph>>("body");
  WEFT_BUG_IF(body.inputs.size() != c.in.size(), "fused: ", c.in.size(), " operands for a body of ",
              body.inputs.size());
  for (size_t i = 0; i < c.in.size(); ++i)
    WEFT_BUG_IF(!(body.type(body.inputs[i]) == c.in[i]), "fused: operand ", i, " is ", c.in[i], "; the body accepts ",
                body.type(body.inputs[i]));
  Types out;
  for (Value v : body.outputs) out.push_back(body.type(v));
  return out;
}

// Bytes that the group reads of each operand: all of it, or only the elements that its ops select.
std::vector<double> bytes_read(const Graph& body, std::span<const TensorType> in) {
  std::vector<double> selected(in.size());
  std::vector<bool> whole(in.size());
  auto operand_of = [&](Value v) {
    const int64_t i = argument_index(body.node(v));
    return i >= 0 ? static_cast<size_t>(i) : in.size();
  };
  for (int32_t id = 0; id < body.size(); ++id) {
    const Node& n = body.node(id);
    const bool selects = n.op->is(kPicks) || n.op == &slice_op || n.op == &dynamic_slice_op;
    for (int i = 0; i < n.inputs.size(); ++i) {
      const size_t operand = operand_of(n.inputs[i]);
      if (operand == in.size()) continue;
      if (selects && i == 0) {
        selected[operand] += static_cast<double>(n.outputs[0].nbytes());
      } else {
        whole[operand] = true;
      }
    }
  }
  for (Value v : body.outputs)
    if (const size_t operand = operand_of(v); operand < in.size()) whole[operand] = true;
  for (size_t i = 0; i < in.size(); ++i) {
    const auto all = static_cast<double>(in[i].nbytes());
    selected[i] = whole[i] ? all : std::min(all, selected[i]);
  }
  return selected;
}

Cost cost_fused(const Attrs& attrs, std::span<const TensorType> in, std::span<const TensorType> out) {
  const Graph& body = *attrs.get<Ref<Graph>>("body");
  Cost cost = body_cost(body);
  cost.bytes = cost.written = cost.working_set = 0;  // op_cost() completes them
  for (double bytes : bytes_read(body, in)) cost.bytes += bytes;
  for (const TensorType& t : out) cost.bytes += static_cast<double>(t.nbytes());
  return cost;
}

// The operands of an op that counts its work (grouped_dot) are operands of the group.
Cost done_fused(const WorkCall& c) {
  const Graph& body = *c.attrs.get<Ref<Graph>>("body");
  Cost cost = cost_fused(c.attrs, c.in, c.out);
  cost.at_most = false;
  for (int32_t id = 0; id < body.size(); ++id) {
    const Node& n = body.node(id);
    if (!n.op->done) continue;
    SmallVec<TensorType, 4> in;
    for (Value v : n.inputs) in.push_back(body.type(v));
    const auto value = [&](size_t i) {
      const Node& operand = body.node(n.inputs[static_cast<int>(i)].node);
      WEFT_BUG_IF(!is_argument(operand), "fused: operand ", i, " of ", n.op->name, " is computed in the group");
      return c.value(static_cast<size_t>(operand.attrs.i("index")));
    };
    const Cost planned = op_cost(body, n), done = op_done(*n.op, {n.attrs, in, n.outputs, value});
    cost.flops += done.flops - planned.flops;
    cost.bytes += done.bytes - planned.bytes;
    cost.products += done.products - planned.products;
  }
  return cost;
}

std::vector<Tensor> decompose_fused(const Attrs& attrs, std::span<const Tensor> in) {
  return interpret(*attrs.get<Ref<Graph>>("body"), in);
}

}  // namespace

Cost body_cost(const Graph& body) {
  Cost cost;
  for (int32_t id = 0; id < body.size(); ++id) {
    const Node& n = body.node(id);
    if (!n.op->is(kStructural) && !n.op->is(kView)) cost += op_cost(body, n);
  }
  return cost;
}

std::string ops_text(const Graph& body, size_t lines) {
  std::vector<std::pair<std::string, std::string>> by_line;  // line, ops
  for (int32_t id = 0; id < body.size(); ++id) {
    const Node& n = body.node(id);
    if (n.op->is(kStructural) || n.op == &constant_op || n.op->is(kView)) continue;
    const std::string line = n.line.to_string();
    auto at = by_line.begin();
    while (at != by_line.end() && at->first != line) ++at;
    if (at == by_line.end()) at = by_line.insert(at, {line, ""});
    if ((", " + at->second + ",").find(str_cat(", ", n.op->name, ",")) != std::string::npos) continue;
    at->second += str_cat(at->second.empty() ? "" : ", ", n.op->name);
  }
  std::string s;
  for (size_t i = 0; i < by_line.size() && i < lines; ++i)
    s += str_cat(s.empty() ? "" : "; ", by_line[i].second, by_line[i].first.empty() ? "" : " at ", by_line[i].first);
  if (by_line.size() > lines) s += str_cat("; and ", by_line.size() - lines, " more lines");
  return s.empty() ? "moves elements" : s;
}

const OpDef copy_op = {.name = "copy",
                       .doc = "The operand's elements in other memory.",
                       .flops_per_point = 0,
                       .infer = internal::infer_same,
                       .dims = internal::dims_pointwise,
                       .kernel = internal::run_copy};

const OpDef fused_op = {
    .name = "fused",
    .doc = "The nodes of its body as one generated kernel.",
    .traits = kRunsBody | kGroup,
    .num_inputs = -1,
    .num_outputs = -1,
    .infer = infer_fused,
    .cost = cost_fused,
    .decompose = decompose_fused,
    .done = done_fused,
};

}  // namespace weft::loop_ir
