// fused: a group of nodes that runs as one generated kernel. Its body is an ordinary Graph, so the interpreter, the
// reference and every analysis see the original ops. A fused node is only an optimisation: it adds no new semantics.
#pragma once
#include "framework/ir/op_def.h"

namespace weft::loop_ir {

/// {body: Graph}. Operands are the inputs of the body, results its outputs. The body holds primitives only, without
/// cells and captured tensors. decompose runs the body. The op has no kernel of its own: the execution plan compiles
/// one for each node.
extern const OpDef fused_op;

/// out = in, elementwise: how values reach output blocks and cells. Only plans contain it.
extern const OpDef copy_op;

/// The sum of the costs of a body's ops.
Cost body_cost(const Graph& body);

/// "add, mul at model.cc:12; tanh at model.cc:14": the ops of a body by the user's line, at most `lines` of them.
std::string ops_text(const Graph& body, size_t lines = 100);

inline const Graph& body_of(const Node& n) { return *n.attrs.get<Ref<Graph>>("body"); }
/// The body of a fused node; null for other nodes.
inline const Graph* group_of(const Node& n) { return n.op->is(kGroup) ? &body_of(n) : nullptr; }

}  // namespace weft::loop_ir
