// What one op becomes on a shard: mostly itself with local shapes; positions, random words and look-ups in a split dim
// take the rank's coordinates in.
#pragma once
#include "distributed/placement/rule.h"
#include "distributed/propagate/reshard.h"
#include "framework/tensor/tensor.h"

namespace weft::dist {

/// Which positions of a sequence each rank has under Layout::kDocuments.
struct DocumentTable {
  Tensor positions;  // i64 [sequence]: rank 0's, then rank 1's, ...
  Tensor places;     // its inverse
};

/// What local ops ask of the emitter.
class Locals {
 public:
  virtual ~Locals() = default;
  virtual const Mesh& mesh() const = 0;
  virtual int rank() const = 0;  // one of the class that is emitted
  /// Where this rank stands along axes: i64 0-d, known at run time.
  virtual Tensor coordinate(const Axes& axes) = 0;
  virtual const DocumentTable& documents() = 0;
  /// Tells of a collective that a local op uses.
  virtual void uses(const Node& node, Move move, const Axes& axes, const Tensor& before, const Tensor& after) = 0;
};

struct LocalCall {
  const Node& node;
  const Graph& graph;  // the joint one
  const Rule& rule;
  const Split& split;
  bool ring = false;           // attention: keys are split as queries
  std::span<const Tensor> in;  // local
  Locals& locals;
};

/// The results on this rank.
std::vector<Tensor> local_op(const LocalCall& call);

/// First index of the rank's block of a segment, i64 0-d.
Tensor block_begin(Locals& locals, const Seg& seg);
/// The global index of each local one of a dim: i64 [local extent].
Tensor global_index(Locals& locals, const DimSpec& dim);

}  // namespace weft::dist
