// One op on a shard. Most ops stay as they are with local shapes. Positions, random words and look-ups in a split dim
// use the coordinates of the rank.
#pragma once
#include "distributed/propagate/lowering.h"
#include "framework/tensor/tensor.h"
#include "ops/attention/mods/relocate.h"

namespace weft::dist {

/// The positions that each rank has under SegLayout::kTable.
struct PositionTable {
  Tensor positions;  // i64 [extent]: positions of rank 0, then of rank 1, ...
  Tensor places;     // the inverse permutation
};

/// The interface of the emitter for local ops.
class Locals {
 public:
  virtual ~Locals() = default;
  virtual const Mesh& mesh() const = 0;
  virtual int rank() const = 0;  // a rank of the class for which the graph is emitted
  /// The coordinate of this rank along axes, i64 0-d: a run-time value.
  virtual Tensor coordinate(const Axes& axes) = 0;
  virtual const PositionTable& positions() = 0;
};

struct LocalCall {
  const Node& node;
  const Graph& graph;  // the joint graph
  const Rule& rule;
  const FactorSplit& split;
  const Lowering* lowering = nullptr;
  std::span<const Tensor> in;  // local
  Locals& locals;
};

/// The results on this rank.
std::vector<Tensor> local_op(const LocalCall& call);

/// The first index of this rank's block of a segment, i64 0-d.
Tensor block_begin(Locals& locals, const Seg& seg);
/// The global index of each local index of a dim: i64 [local extent].
Tensor global_index(Locals& locals, const DimSpec& dim);
/// The global index in the form for attention: an offset for a block, else a table.
IndexMap index_map(Locals& locals, const DimSpec& dim);

}  // namespace weft::dist
