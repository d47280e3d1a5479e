// Asynchronous tensor parallelism (Wang et al., "Overlap communication with dependent computation via decomposition",
// 2023): a product that waits for an all-gather, or that a reduce-scatter waits for, becomes a ring with one product
// per rank. Each step passes a piece to the next rank while its product runs.
#pragma once
#include <vector>

#include "distributed/overlap/network.h"

namespace weft::dist {

enum class AsyncTp : uint8_t {
  kAuto,  // where the cost model predicts a gain; never where ranks share cores, because nothing is hidden there
  kOn,    // wherever the pattern fits
  kOff,
};

/// One product to split into a ring.
struct Ring {
  int32_t collective = -1;
  std::vector<int32_t> dots;  // of an all-gather: all its readers; of a reduce-scatter: the one product that it reduces
  bool gather = true;
};

/// All-gathers read by products alone along a dim that they do not contract, and reduce-scatters of the sum of a
/// product that has no other reader; even shards only.
std::vector<Ring> choose_rings(const Graph& g, const Mesh& mesh, const Machine& machine, AsyncTp mode);

/// The graph with those rings; permute_ranks take new sites after the largest there is. Rows of a gathered product are
/// those of the products of its pieces. A scattered block b is summed from left to right over ranks b + 1, b + 2, ...,
/// b (in the ring), the same each time but not the order of reduce_scatter, which is 0, 1, 2, ....
Ref<Graph> apply_rings(const Graph& g, const std::vector<Ring>& rings);

}  // namespace weft::dist
