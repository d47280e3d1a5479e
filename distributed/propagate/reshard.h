// Resharding: the cheapest sequence of slices and collectives from one spec of a tensor to another.
#pragma once
#include <vector>

#include "distributed/placement/spec.h"

namespace weft::dist {

enum class Move : uint8_t {
  kSlice,        // keep the own part: no communication
  kMakePending,  // coordinate 0 keeps the value, the others take zeros: no communication
  kReduceScatter,
  kAllReduce,
  kAllToAll,
  kAllGather,
  kRows,     // rows sorted by expert go to the ranks of their experts, or back
  kPermute,  // a ring's; never part of a resharding
  kNever,    // there is no way
};
const char* to_string(Move m);

/// One dim in the common refinement of the two specs.
struct Part {
  int dim = 0;
  int64_t extent = 1;
  Axes axes = {};  // now
  Layout layout = Layout::kBlock;
  int64_t room = 0;
};

struct Step {
  Move move = Move::kSlice;
  int part = 0;    // kSlice, kReduceScatter, kAllGather: which; kAllToAll: which is split
  int from = 0;    // kAllToAll: the part that is joined
  Axes axes = {};  // that come or go
  ReduceOp op = ReduceOp::kSum;
  Layout layout = Layout::kBlock;  // kSlice, kReduceScatter, kRows: of the new split
  int64_t room = 0;                // kRows
};

/// Steps over one set of parts. Where the two specs have no common refinement there are two stages: to the whole dims,
/// and on from there.
struct Stage {
  std::vector<Part> parts;  // as the tensor lies before the first step
  std::vector<Step> steps;
};

/// Stages from `from` to `to`, specs of one shape. Empty if they are equal.
std::vector<Stage> reshard(const Mesh& mesh, const Spec& from, const Spec& to);

/// Bytes that one rank sends over each link of a ring for these stages, for a tensor of `dtype` (the largest rank's);
/// and how many collectives there are.
struct MoveCost {
  double bytes = 0;
  int collectives = 0;
};
MoveCost cost_of(const Mesh& mesh, const std::vector<Stage>& stages, DType dtype);
/// Bytes that a rank sends for one collective over n ranks: `bytes` is what the rank holds before (all-gather,
/// all-to-all: its part; reduce-scatter, all-reduce: the whole).
double sent_bytes(Move move, double bytes, int64_t n);

}  // namespace weft::dist
