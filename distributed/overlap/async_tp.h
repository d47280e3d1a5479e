// Asynchronous tensor parallelism (Wang et al., "Overlap communication with dependent computation via decomposition",
// 2023): a product after an all-gather, or before a reduce-scatter, becomes a ring of one smaller product for each
// rank. While a rank computes one product, it sends a piece of the operand or of the sum to its neighbour.
#pragma once
#include <vector>

#include "distributed/overlap/network.h"

namespace weft::dist {

enum class AsyncTp : uint8_t {
  kAuto,  // where the cost model predicts a gain; never where ranks share cores, which leaves nothing to hide
  kOn,    // wherever the pattern matches
  kOff,
};

/// One collective that becomes a ring with its products.
struct Ring {
  int32_t collective = -1;
  std::vector<int32_t> dots;  // all readers of an all-gather, or the one product that a reduce-scatter reduces
  bool gather = true;
};

/// Chooses all-gathers whose readers are all products that do not contract the gathered dim, and reduce-scatters of a
/// product with no other reader. Shards must be even.
std::vector<Ring> choose_rings(const Graph& g, const Mesh& mesh, const Network& net, AsyncTp mode);

/// The graph with these rings. New permute_ranks nodes get sites after the largest one. Each row of a gathered product
/// has the same bits as before. A ring sums scattered block b over ranks b + 1, b + 2, ..., b: the same order in every
/// run, but not that of reduce_scatter, which is 0, 1, 2, ....
Ref<Graph> apply_rings(const Graph& g, const std::vector<Ring>& rings);

}  // namespace weft::dist
