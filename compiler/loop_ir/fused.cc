#include "compiler/loop_ir/fused.h"

#include "framework/dispatch/capture.h"
#include "framework/dispatch/interpreter.h"

namespace weft::loop_ir {
namespace {

Types infer_fused(const InferCall& c) {
  const Graph& body = *c.attrs.get<Ref<Graph>>("body");
  WEFT_BUG_IF(body.inputs.size() != c.in.size(), "fused: ", c.in.size(), " operands for a body of ",
              body.inputs.size());
  for (size_t i = 0; i < c.in.size(); ++i)
    WEFT_BUG_IF(!(body.type(body.inputs[i]) == c.in[i]), "fused: operand ", i, " is ", c.in[i], "; the body takes ",
                body.type(body.inputs[i]));
  Types out;
  for (Value v : body.outputs) out.push_back(body.type(v));
  return out;
}

Cost cost_fused(const Attrs& attrs, std::span<const TensorType> in, std::span<const TensorType> out) {
  Cost cost;
  cost.flops = body_flops(*attrs.get<Ref<Graph>>("body"));
  for (const TensorType& t : in) cost.bytes += static_cast<double>(t.nbytes());
  for (const TensorType& t : out) cost.bytes += static_cast<double>(t.nbytes());
  return cost;
}

std::vector<Tensor> decompose_fused(const Attrs& attrs, std::span<const Tensor> in) {
  return interpret(*attrs.get<Ref<Graph>>("body"), in);
}

}  // namespace

double body_flops(const Graph& body) {
  double flops = 0;
  for (int32_t id = 0; id < body.size(); ++id) {
    const Node& n = body.node(id);
    if (n.op->is(kStructural) || n.op->is(kView)) continue;
    SmallVec<TensorType, 4> types;
    for (Value v : n.inputs) types.push_back(body.type(v));
    flops += op_cost(*n.op, n.attrs, types, n.outputs).flops;
  }
  return flops;
}

const OpDef fused_op = {
    .name = "fused",
    .doc = "The nodes of its body as one generated kernel.",
    .num_inputs = -1,
    .num_outputs = -1,
    .infer = infer_fused,
    .cost = cost_fused,
    .decompose = decompose_fused,
};

}  // namespace weft::loop_ir
