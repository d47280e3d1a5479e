// OpDef: the one record of a primitive op: type inference, derivative, dim map, cost, kernel, samples. Capture,
// autodiff, compiler, distributed and the tests read every property of an op from it.
#pragma once
#include <functional>

#include "framework/base/function_ref.h"
#include "framework/ir/dim_map.h"
#include "framework/ir/graph.h"
#include "framework/tensor/tensor.h"

namespace weft {

/// Properties of ops. Passes test them instead of listing ops.
enum Trait : uint32_t {
  kPointwise = 1 << 0,  // out[i] depends on in[i] only; operands have the output's shape or are 0-d
  kView = 1 << 1,       // the result may alias its operand's memory
  kReduction = 1 << 2,
  kContraction = 1 << 3,  // GEMM-like
  kRandom = 1 << 4,       // result depends on {op_id} and the generator's cells
  kSideEffect = 1 << 5,   // never removed, order kept
  kStructural = 1 << 6,   // input, cell, captured, grad, barrier: meaning belongs to the graph, not to a kernel
  kCommutative = 1 << 7,  // the first two operands may be swapped
  kIndexing = 1 << 8,     // gather, scatter
  kNotDifferentiable = 1 << 9,
  kReadsTape = 1 << 10,   // grad: meaning depends on how its operands were computed; the interpreter calls decompose
  kTapeStart = 1 << 11,   // barrier: its result records for grad(), so the interpreter lets it start a tape
  kInPlace = 1 << 12,     // the kernel's result may be exactly operand 0 (pointwise kernels: any operand)
  kCollective = 1 << 13,  // depends on other ranks: never folded to a constant, never recomputed
  kOrdered = 1 << 14,     // keeps its order among such nodes and is not moved forward
  kSameMemory = 1 << 15,  // given operand 0's memory for its result, the kernel keeps operand 0's value there
  kUnfolds = 1 << 16,  // compiled steps call decompose just before fusion, so that the parts fuse with their neighbours
  kCustom = 1 << 17,   // an op of the program's own: the names of its attributes have no meaning
  kPicks = 1 << 18,    // the elements of operand 0 that the indices in operand 1 choose along {dim}
  kAddsAtIndex = 1 << 19,  // operand 0 plus operand 2, element by element at the indices in operand 1
  kProduct = 1 << 20,      // sums of products of operands 0 and 1, along which groups and targets make tiles
  kAttention = 1 << 21,    // attention or its derivative: ops/attention describes the operands
  kFromAttrs = 1 << 22,    // no operands: the attributes determine each element, so any part can be made again
  kExpertRows = 1 << 23,   // ops that sort rows by expert, or move or multiply sorted rows, with rounded sums
  kRunsBody = 1 << 24,     // no kernel of its own: the plan of the step prepares the ops of its {body}
  kGroup = 1 << 25,        // its {body} is one generated kernel
  kAssembles = 1 << 26,    // puts elements of its operands, in their order, beside others: no arithmetic
  kCallsBody = 1 << 27,    // calls its {body}, a function of the program, on its operands
  kLinearLoss = 1 << 28,   // the loss of a linear layer or its gradient: (x, weights, targets, ...)
  kMayThrow = 1 << 29,  // the kernel throws for some values of its operands: an index out of range, a singular matrix
  kWantsF32 = 1 << 30,  // under Autocast, 16-bit operands become f32: powers, exponentials, sums
};

namespace internal {
/// The source of a leaf of a graph: entry {index} of Graph::inputs, of Graph::cells or of Graph::captured.
enum class Leaf : uint8_t { kNone, kArgument, kCell, kCaptured };
}  // namespace internal

/// How a view that analyses see through places the elements of operand 0.
enum class Placing : uint8_t {
  kNone,       // no view, or one with another purpose (barrier)
  kSame,       // each in its place
  kReshape,    // in their order, in a result of other dims
  kPermute,    // dim i of the result is dim {dims}[i]
  kBroadcast,  // repeated along dims that operand 0 lacks or has with extent 1
  kSlice,      // the elements of {begin, end, step}
  kWindow,     // the elements of each window of {dims, size, stride, dilation}
};

/// The function of a reduction over its {dims}.
enum class Reduction : uint8_t { kNone, kSum, kMax, kMin, kProd };

using Types = SmallVec<TensorType, 1>;

struct InferCall {
  const OpDef& op;
  const Attrs& attrs;
  std::span<const TensorType> in;
};

/// Arguments of a kernel. Outputs are allocated (contiguous unless the executor decides otherwise); workspace has the
/// size that OpDef::workspace returned.
struct KernelCall {
  const OpDef& op;
  const Attrs& attrs;
  std::span<const StridedView> in;
  std::span<const StridedView> out;
  void* workspace = nullptr;
};

/// Arguments of a derivative: operands, results and the gradients of results (undefined = zero). Any may be traced.
struct VjpCall {
  const OpDef& op;
  const Attrs& attrs;
  std::span<const Tensor> in;
  std::span<const Tensor> out;
  std::span<const Tensor> grad;
  uint64_t needed = ~uint64_t{0};  // bit i: the gradient of operand i is wanted
  bool needs(int i) const { return needed >> (i < 63 ? i : 63) & 1; }
};

/// Gradients of the operands; undefined = zero. They are written in public ops, so second-order gradients work too.
using Grads = std::vector<Tensor>;

/// The work of one call: operations and bytes moved. compiler/cost/roofline.h predicts its time.
struct Cost {
  double flops = 0;                // all operations
  double bytes = 0;                // read plus written
  double products = 0;             // the part of `flops` that is matrix products: 2 m n k each
  DType product_dtype = kFloat32;  // dtype of the operands of these products
  bool at_most = false;            // `flops` is an upper bound: the number depends on data
  double written = 0;              // the part of `bytes` that is written
  double working_set = 0;          // bytes that one pass touches; a pass of a loop is one iteration

  /// The work of both calls, one after the other: of the working sets, the larger counts.
  Cost& operator+=(const Cost& other);
};

/// One call whose work is counted by the values of its operands.
struct WorkCall {
  const Attrs& attrs;
  std::span<const TensorType> in, out;
  FunctionRef<Tensor(size_t)> value;  // value of operand i, contiguous, in host memory
};

namespace internal {
/// One call of an op in the generated tests: operand specs and attributes.
struct SampleInput {
  Shape shape;
  DType dtype = kFloat32;  // a float means every floating dtype that the test runs
  double lo = -2, hi = 2;  // range of random values; integers are drawn from [lo, hi]
};
struct Sample {
  std::vector<SampleInput> in;
  Attrs attrs;
  std::string error;  // not empty: the call must throw a message containing this
  bool grad = true;   // check the derivative by central differences in f64
};
}  // namespace internal

struct OpDef {
  const char* name = "";
  const char* doc = "";
  uint32_t traits = 0;
  internal::Leaf leaf = internal::Leaf::kNone;
  Placing placing = Placing::kNone;
  Reduction reduction = Reduction::kNone;
  int num_inputs = 1;  // -1: any number
  int num_outputs = 1;
  double flops_per_point = 1;  // per point of the dim map's iteration space
  /// Types of the results; throws "name: ..." on operands that do not fit. Called by infer_types, which checks extents.
  Types (*infer)(const InferCall&) = nullptr;
  /// Null: no gradient flows (integer results, kNotDifferentiable).
  Grads (*vjp)(const VjpCall&) = nullptr;
  /// Iteration space: which dims of operands and results move together, and which are reduced.
  DimMap (*dims)(const Attrs&, std::span<const TensorType> in, std::span<const TensorType> out) = nullptr;
  /// Overrides the default: flops_per_point x points, and the bytes of operands plus results.
  Cost (*cost)(const Attrs&, std::span<const TensorType> in, std::span<const TensorType> out) = nullptr;
  void (*kernel)(const KernelCall&) = nullptr;
  /// Bytes of scratch memory that the kernel needs.
  int64_t (*workspace)(const Attrs&, std::span<const StridedView> in, std::span<const StridedView> out) = nullptr;
  /// kView: the strides and the offset (in elements) that view operand 0 as the result; false if only the kernel's copy
  /// can.
  bool (*view)(const Attrs&, const StridedView& in, const TensorType& out, Shape* strides, int64_t* offset) = nullptr;
  /// The same function in terms of other primitives (attention, grouped_dot); null if the op is itself primitive.
  std::vector<Tensor> (*decompose)(const Attrs&, std::span<const Tensor> in) = nullptr;
  std::vector<internal::Sample> (*samples)() = nullptr;
  // Bit i: vjp reads the value of operand i. Otherwise it reads only the type, and the memory is not kept.
  uint32_t vjp_reads_in = ~0u;
  uint32_t vjp_reads_out = ~0u;  // the same for results
  uint32_t linear = 0;           // bit i: linear in operand i, so partial sums of it give partial sums of the result
  bool jointly = false;          // linear in all of these together (add), not only in each with the others fixed (mul)
  int scalar = -1;               // kPointwise: index into the table of scalar functions (ops/kernels: enum class Pw)

  /// The work that the values of the operands need: scores that a mask leaves, rows in groups, and the bytes of
  /// operands that these read. Null: the op cannot count. Kernels may compute more (whole tiles).
  Cost (*done)(const WorkCall&) = nullptr;
  /// The op that only starts this collective, or null.
  const OpDef* start = nullptr;

  bool is(Trait t) const { return traits & t; }
};

/// The types of an op's results by its rule, which may calculate with saturating arithmetic. Throws on types that no
/// tensor has: with a negative extent, or too many elements.
Types infer_types(const OpDef& op, const Attrs& attrs, std::span<const TensorType> in);

/// Throws, naming the op, if operand i is on another device than operand j.
void check_device(const OpDef& op, size_t i, Device of_i, size_t j, Device of_j);
/// The device of a pointwise op's result: its operands' device. A scalar in host memory may be combined with tensors on
/// meta or another CPU. Throws on other mixtures.
Device pointwise_device(const OpDef& op, std::span<const TensorType> in);

/// The cost of one call, by the record's own rule or by its dim map. If an op has kContraction and its rule sets no
/// products, all its operations are products.
Cost op_cost(const OpDef& op, const Attrs& attrs, std::span<const TensorType> in, std::span<const TensorType> out);
/// The cost of a node whose operands are in `g`.
Cost op_cost(const Graph& g, const Node& n);
/// The work of one call by the values of its operands: OpDef::done, or op_cost where that is null.
Cost op_done(const OpDef& op, const WorkCall& call);

// Structural ops: ops whose meaning belongs to the graph itself.
extern const OpDef input_op;     // argument {index}
extern const OpDef cell_op;      // value of a cell when the graph starts {index}
extern const OpDef captured_op;  // concrete tensor closed over {index}

/// A value from outside the graph.
inline bool is_leaf(const Node& n) { return n.op->leaf != internal::Leaf::kNone; }
/// In a body: an operand of the node that the body belongs to.
inline bool is_argument(const Node& n) { return n.op->leaf == internal::Leaf::kArgument; }
inline bool is_cell(const Node& n) { return n.op->leaf == internal::Leaf::kCell; }
/// A value that the step itself keeps: a cell or a captured tensor. Bodies have none.
inline bool is_kept(const Node& n) { return is_cell(n) || n.op->leaf == internal::Leaf::kCaptured; }
/// A leaf that no write of the graph changes.
inline bool is_unwritten_leaf(const Node& n) { return is_leaf(n) && !is_cell(n); }
/// The index of the argument or cell that a node reads; -1 if it reads none.
inline int64_t argument_index(const Node& n) { return is_argument(n) ? n.attrs.i("index") : -1; }
inline int64_t cell_index(const Node& n) { return is_cell(n) ? n.attrs.i("index") : -1; }

/// A view whose result has each element of operand 0 exactly once, in any order.
inline bool is_rearranged(const Node& n) {
  return n.op->placing == Placing::kReshape || n.op->placing == Placing::kPermute;
}
/// A view whose result has equal values if operand 0 has: every element is there, perhaps several times.
inline bool is_spread(const Node& n) { return is_rearranged(n) || n.op->placing == Placing::kBroadcast; }
/// A view of parts of operand 0, by strides.
inline bool is_part(const Node& n) { return n.op->placing == Placing::kSlice || n.op->placing == Placing::kWindow; }
/// Operand 0 itself, in an op that matters to differentiation or to order only (barrier, stop_gradient).
inline bool is_passed_on(const Node& n) { return n.op->is(kStructural) && n.op->is(kView); }
inline bool is_broadcast(const Node& n) { return n.op->placing == Placing::kBroadcast; }

/// Finds ops by name for parse_graph: first the structural ops, then the ops of the table that it was made from.
class OpTable {
 public:
  explicit OpTable(std::span<const OpDef* const> ops);
  /// Null if there is no such op.
  const OpDef* find(std::string_view name) const;
  std::span<const OpDef* const> ops() const { return ops_; }

 private:
  std::vector<const OpDef*> ops_;
};

}  // namespace weft
