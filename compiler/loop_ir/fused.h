// fused: a group of nodes that runs as one generated kernel. Its body is an ordinary Graph, so the interpreter, the
// reference and every analysis see the original ops. A fused node is only an optimisation: it adds no new semantics.
#pragma once
#include "framework/ir/op_def.h"

namespace weft::loop_ir {

/// {body: Graph}. Operands are the inputs of the body, results its outputs. The body holds primitives only, without
/// cells and captured tensors. decompose runs the body. The op has no kernel of its own: the execution plan compiles
/// one for each node.
extern const OpDef fused_op;

/// Floating-point operations of one run of a body.
double body_flops(const Graph& body);

inline const Graph& body_of(const Node& n) { return *n.attrs.get<Ref<Graph>>("body"); }

}  // namespace weft::loop_ir
