// Resharding: the cheapest sequence of slices and collectives that turns one spec of a tensor into another.
#pragma once
#include <vector>

#include "distributed/placement/spec.h"

namespace weft::dist {

enum class Move : uint8_t {
  kSlice,        // keep this rank's part: no communication
  kMakePending,  // coordinate 0 keeps the value, the others get zeros: no communication
  kReduceScatter,
  kAllReduce,
  kAllToAll,
  kAllGather,
  kRows,   // rows sorted by expert go to the ranks of their experts, or back
  kNever,  // impossible
};

/// One dim in the common refinement of the two specs.
struct SpecPart {
  int dim = 0;
  int64_t extent = 1;
  Axes axes = {};  // now
  SegLayout layout = SegLayout::kBlock;
  int64_t room = 0;
};

struct ReshardStep {
  Move move = Move::kSlice;
  int part = 0;    // the part that changes; kAllToAll: the part that is split
  int from = 0;    // kAllToAll: the part that is joined
  Axes axes = {};  // the axes that are added or removed
  ReduceOp op = ReduceOp::kSum;
  SegLayout layout = SegLayout::kBlock;  // kSlice, kReduceScatter, kRows: layout of the new split
  int64_t room = 0;                      // kRows
};

/// Steps over one set of parts. Two specs without a common refinement need two stages: to whole dims, and from whole
/// dims.
struct ReshardStage {
  std::vector<SpecPart> parts;  // the parts of the tensor before the first step
  std::vector<ReshardStep> steps;
};

/// Takes the last `n` axes from a part.
void shrink(SpecPart& part, size_t n);

/// Stages from `from` to `to`, specs of one shape. Empty if they are equal.
std::vector<ReshardStage> reshard(const Mesh& mesh, const Spec& from, const Spec& to);

/// A placement that a value has.
struct Version {
  Spec spec;
  bool gathered = false;  // an all-gather made it, which backward repeats
  bool backward = false;  // made for a node of backward
};

/// The bytes that the largest rank sends over its link for these stages, for a tensor of `dtype`, and the number of
/// collectives.
struct MoveCost {
  double bytes = 0;
  int collectives = 0;
};
MoveCost cost_of(const Mesh& mesh, const std::vector<ReshardStage>& stages, DType dtype);
/// The bytes that a rank sends for one collective over n ranks. `bytes`: the size of the rank's operand (its part for
/// all-gather and all-to-all, the whole for reduce-scatter and all-reduce).
double sent_bytes(Move move, double bytes, int64_t n);

/// The version from which `to` needs the fewest bytes; no version: none is visible.
template <class V>
struct Source {
  const V* version = nullptr;
  std::vector<ReshardStage> stages = {};
  double bytes = -1;
};
template <class V, class F>
Source<V> cheapest(const Mesh& mesh, const std::vector<V>& versions, const Spec& to, DType dtype, const F& visible) {
  Source<V> best;
  for (const V& v : versions) {
    if (!visible(v)) continue;
    if (v.spec == to) return {&v, {}, 0};
    std::vector<ReshardStage> stages = reshard(mesh, v.spec, to);
    const double bytes = cost_of(mesh, stages, dtype).bytes;
    if (!best.version || bytes < best.bytes) best = {&v, std::move(stages), bytes};
  }
  return best;
}

}  // namespace weft::dist
