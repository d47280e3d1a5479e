// Lowers the body of a fused node to a loop IR kernel and the numbers with which it is launched.
//
// One kernel can hold:
// - Pointwise ops, casts, constants, iota and views (reshape, permute, broadcast, slice) over one iteration domain. It
//   has any number of results, and operands of any layout. A view inside becomes an index map.
// - Row reductions: sums, max, min and prod over the same trailing axes of the domain, one after another, with
//   everything that is computed from them on the same rows (softmax, norms, their gradients): kRows. Over axes that are
//   not contiguous (softmax over dim 0, products in log space): kAcross.
// - Results that are sums over all outer axes (gradients of a bias or of a norm's weight), alone or beside row
//   reductions.
// - gather and index_select: loads at computed positions, from any value that can be computed there.
// - A single reduction of a few long rows: kSplit.
// - One product (`dot`, or `grouped_dot` of rows) whose operands are inputs of the body and whose result is used
//   elementwise in the same domain. The kernel is its epilogue and reads the finished tile (Lowered::dot). Operands of
//   a dot that the body computes elementwise become kernels of their own (prologue.h); cannot_lower checks them too.
#pragma once
#include "compiler/loop_ir/loop_ir.h"
#include "framework/ir/graph.h"
#include "framework/ir/op_def.h"

namespace weft::loop_ir {

/// Whether an op can be part of a fused body: it has a lowering for these types. Products are not included.
bool can_fuse(const Node& n);
/// dot, or grouped_dot of rows.
bool is_product(const Node& n);
/// The number of trailing dims of a product's result that are columns.
int product_columns(const Graph& g, const Node& n);
/// The number of elements in these dims: of a row of the result.
int64_t row_elements(const Graph& g, const Node& n);

/// The memory layout of an operand or result of the node (strides in elements).
struct ValueLayout {
  TensorType type;
  Shape strides;
};

/// Binds operand k of the kernel to result or operand `index` of the node, starting at element `offset`.
struct BoundOperand {
  bool output = false;
  int32_t index = 0;
  int64_t offset = 0;
  std::vector<int64_t> strides;  // index: axis
  int64_t index_stride = 0;      // stride of the gathered dim of an indexed operand
};

/// A result that the caller finishes: it combines the partial sums of column or partial `slot` into result `output`.
struct Finish {
  int slot = 0;
  int32_t output = 0;
  kernels::Rd rd{};
  Type type = Type::f32;
};

struct Lowered {
  Kernel kernel;
  std::vector<BoundOperand> bound;  // index: kernel operand
  std::vector<int64_t> extents;     // index: axis
  std::vector<double> params;
  std::vector<Finish> columns, partials;
  int64_t joined = 1;  // kSplit: neighbouring outer points that are one row, whose blocks are combined together
  int32_t dot = -1;    // node of the body, or -1
  int32_t tile = -1;   // dot: the kernel operand (f32) that is the finished tile; outer points are batch x rows of the
  // product, lanes are its columns
  double flops = 0;  // FLOPs of the whole body, as op_cost counts
  double bytes = 0;  // operands read once, results written once
  /// Whether result `output` may have exactly the memory of operand `input`: each element is read before it is written.
  bool may_overwrite(int32_t input, int32_t output) const;
  std::vector<std::pair<int32_t, int32_t>> overwrites;  // (input, output) pairs of may_overwrite
  std::vector<std::string> rounds_less;  // "add at model.cc:43": 16-bit values that stay f32 inside (numerics fast)

  int64_t outer_points() const;
  int64_t lanes() const { return extents.back(); }
  int64_t scratch_floats() const;  // scratch of one call
};

struct LowerOptions {
  bool round_like_eager = false;  // round every 16-bit value where eager mode does
  bool in_order = false;          // the operand of a product that is being packed: outer axes stay in order
  int64_t tile_row = 0;           // elements between rows of the finished tile of a dot; 0: it is contiguous
};

/// Why the body cannot be one kernel, as words that follow "not fused: ". Empty if it can.
std::string cannot_lower(const Graph& body);
/// The same for operands and results of these layouts. The operands of a product must be inputs of the body.
std::string cannot_lower(const Graph& body, std::span<const ValueLayout> in, std::span<const ValueLayout> out);

/// The kernel for these layouts. Throws kInternal if cannot_lower is not empty.
Lowered lower_group(const Graph& body, std::span<const ValueLayout> in, std::span<const ValueLayout> out,
                    const LowerOptions& options = {});

}  // namespace weft::loop_ir
