// The eager tape: how a tensor was computed. A node keeps its operands, and its results if the derivative reads them.
#pragma once
#include "framework/ir/op_def.h"

namespace weft {

struct Cell;

struct TapeNode final : RefCounted {
  const OpDef* op = nullptr;  // null: a leaf (a parameter, or a tensor after requires_grad())
  Attrs attrs;
  SmallVec<Tensor, 3> in;   // operands with their own tape links; only types if the derivative does not read the value
  SmallVec<Tensor, 1> out;  // without links, to avoid reference cycles
  SourceLine line;
  uint64_t sequence = 0;  // later nodes have larger numbers: a topological order
  uint64_t variable = 0;  // identity of a leaf, equal for all values of one parameter
  bool trained = false;   // a leaf that an optimiser updates, or that grad() was called for
  ~TapeNode() override;
};

/// The node that computed `t`, or null.
inline TapeNode* tape_node(const Tensor& t) { return static_cast<TapeNode*>(t.get().grad.get()); }
/// The same value with a tape link.
Tensor with_tape(const Tensor& t, Ref<TapeNode> node, int index);
/// A new leaf.
Ref<TapeNode> make_leaf();
/// Records a call that just computed `out`; sets the links of `out`.
void record(const OpDef& op, std::span<const Tensor* const> in, const Attrs& attrs, SourceLine line,
            std::span<Tensor> out);
/// True if recording is on and an operand is on the tape.
bool should_record(const OpDef& op, std::span<const Tensor* const> in);

}  // namespace weft
