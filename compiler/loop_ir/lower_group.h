// From the body of a fused node to loop IR and the numbers it is launched with.
//
// What can be one kernel:
//   - pointwise ops, casts, constants, iota and views (reshape, permute, broadcast, slice) over one iteration domain,
//   any
//     number of results, operands of any layout (a view inside becomes an index map);
//   - row reductions: sums, max, min, prod over the same trailing axes of the domain, one after another, with
//   everything
//     computed from them on the same rows (softmax, norms, their gradients): kRows; over axes that are not the
//     contiguous ones (softmax over dim 0, log-space products): kAcross;
//   - results that are sums over all outer axes (gradients of a norm's weight, of a bias), beside row reductions or
//   alone;
//   - gather and index_select: loads at positions that are themselves computed, of any value that can be computed
//   there;
//   - a single reduction of few rows that are long: kSplit;
//   - one product (`dot`, or `grouped_dot` of rows) whose operands are inputs of the body and whose result is used
//     elementwise in the same domain: the kernel is its epilogue and reads the finished tile (Lowered::dot). Operands
//     of a dot that the body computes elementwise are kernels of their own (prologue.h); cannot_lower looks at these
//     too.
#pragma once
#include "compiler/loop_ir/loop_ir.h"
#include "framework/ir/graph.h"
#include "framework/ir/op_def.h"

namespace weft::loop_ir {

/// An op that may stand in a fused body (products excepted): it has a lowering for these types.
bool can_fuse(const Node& n);
/// dot, or grouped_dot of rows.
bool is_product(const Node& n);
/// How many trailing dims of a product's result are columns.
int product_columns(const Graph& g, const Node& n);

/// How an operand or result of the node lies in memory (strides in elements).
struct Layout {
  TensorType type;
  Shape strides;
};

/// Operand k of the kernel: result or operand `index` of the node, from element `offset` on.
struct Bound {
  bool output = false;
  int32_t index = 0;
  int64_t offset = 0;
  std::vector<int64_t> strides;  // by axis
  int64_t index_stride = 0;      // of the gathered dim of an indexed operand
};

/// A result that the caller finishes: partial sums of column or partial `slot` combined into result `output`.
struct Finish {
  int slot = 0;
  int32_t output = 0;
  kernels::Rd rd{};
  Type type = Type::f32;
};

struct Lowered {
  Kernel kernel;
  std::vector<Bound> bound;      // by kernel operand
  std::vector<int64_t> extents;  // by axis
  std::vector<double> params;
  std::vector<Finish> columns, partials;
  int32_t dot = -1;   // node of the body, or -1
  int32_t tile = -1;  // dot: the kernel operand that is the finished tile (f32); outer points are batch x rows of the
                      // product, lanes its columns
  double flops = 0;   // by op_cost, of the whole body
  double bytes = 0;   // operands read once, results written once
  /// Result `output` may lie exactly where operand `input` lies: each element is read before it is written.
  bool may_overwrite(int32_t input, int32_t output) const;
  std::vector<std::pair<int32_t, int32_t>> overwrites;  // (input, output) pairs of may_overwrite
  std::vector<std::string> rounds_less;  // "add at model.cc:43": 16-bit values that stay f32 inside (numerics fast)

  int64_t outer_points() const;
  int64_t lanes() const { return extents.back(); }
  int64_t scratch_floats() const;  // of one call
};

struct LowerOptions {
  bool round_like_eager = false;  // round every 16-bit value where eager does
  bool in_order = false;          // the operand of a product while it is packed: outer axes stay in order
};

/// Why the body cannot be one kernel, in words that follow "not fused: "; empty if it can.
std::string cannot_lower(const Graph& body);

/// The kernel for these layouts. Throws kInternal where cannot_lower is not empty.
Lowered lower_group(const Graph& body, std::span<const Layout> in, std::span<const Layout> out,
                    const LowerOptions& options = {});

}  // namespace weft::loop_ir
