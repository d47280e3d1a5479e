// A product whose operands are computed while it packs them. The body is split into a main graph, in which these
// operands are ordinary inputs, and one kernel for each computed operand. The kernel writes any piece of its operand.
#pragma once
#include <optional>

#include "compiler/loop_ir/lower_group.h"

namespace weft::loop_ir {

/// An operand of the product that the body computes. It is treated as row-major memory: lines of contiguous elements
/// that are rows or columns of the operand.
struct Prologue {
  Ref<Graph> body;              // null: the operand is an input
  std::vector<int32_t> inputs;  // input of body -> input of the whole graph
  TensorType type;              // type of the operand
  bool transposed = false;      // lines are columns of [m, k] or of [k, n]
  int64_t line = 0;             // elements per line
  int64_t line_stride = 0, batch_stride = 0;
};

struct DotParts {
  Ref<Graph> main;  // its inputs: the inputs of the whole graph, then one for each computed operand
  Prologue operand[2];
};

/// Empty if the body computes no operand of a product. Throws Unfusable if gemm cannot take the operand.
std::optional<DotParts> take_apart(const Graph& body);

/// Why gemm cannot accept operand 0 or 1 of a dot in pieces that any kernel computes on demand. Empty if it can.
std::string cannot_fill(const Node& dot, const TensorType& a, const TensorType& b, int operand);

/// The kernel for a computed operand. Its only result, the last operand of the kernel, has strides that the caller
/// sets: flat position p of the operand is lane p % lanes() of flat outer point p / lanes(). Throws Unfusable.
Lowered lower_prologue(const Prologue& p, std::span<const ValueLayout> in, const LowerOptions& options);

}  // namespace weft::loop_ir
