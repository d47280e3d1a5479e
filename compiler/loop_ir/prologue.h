// A product whose operands are computed while it packs them: the body is taken apart into a kernel for each computed
// operand, which writes any piece of it, and the rest, for which it is an operand like others.
#pragma once
#include <optional>

#include "compiler/loop_ir/lower_group.h"

namespace weft::loop_ir {

/// An operand of the product that the body computes. It is thought of as row-major memory: lines of neighbours that
/// are rows of the product's operand, or its columns.
struct Prologue {
  Ref<Graph> body;              // null: the operand is an input
  std::vector<int32_t> inputs;  // by input of body: the input of the whole
  TensorType type;              // of the operand
  bool transposed = false;      // lines are columns of [m, k], or of [k, n]
  int64_t line = 0;             // elements of a line
  int64_t line_stride = 0, batch_stride = 0;
};

struct DotParts {
  Ref<Graph> main;  // with the inputs of the whole, then one for each computed operand
  Prologue operand[2];
};

/// Nothing where no operand of a product is computed in the body. Throws Unfusable where gemm cannot take it.
std::optional<DotParts> take_apart(const Graph& body);

/// Why gemm cannot take operand 0 or 1 of a dot in pieces computed when it needs them, whatever computes it; empty if
/// it can.
std::string cannot_fill(const Node& dot, const TensorType& a, const TensorType& b, int operand);

/// The kernel for a computed operand. Its one result, the last operand of the kernel, has strides that the caller sets:
/// flat position p of the operand is lane p % lanes() of flat outer point p / lanes(). Throws Unfusable.
Lowered lower_prologue(const Prologue& p, std::span<const Layout> in, const LowerOptions& options);

}  // namespace weft::loop_ir
