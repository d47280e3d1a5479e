// Asynchronous tensor parallelism (Wang et al., "Overlap communication with dependent computation via decomposition",
// 2023): a product after an all-gather, or before a reduce-scatter, becomes a ring of one smaller product for each
// rank. While a rank computes one product, it sends a piece of the operand or of the sum to its neighbour.
//
// With kOn instead of kOff, results differ in their last digits: see apply_rings().
#pragma once
#include <map>
#include <string_view>
#include <vector>

#include "distributed/overlap/network.h"

namespace weft::dist {

enum class AsyncTp : uint8_t {
  kAuto,  // where the cost model predicts a gain; where cores move what is sent, only the time on a network is hidden
  kOn,    // wherever the pattern matches
  kOff,
};

/// "auto", "on" or "off"; throws InvalidArgument for others.
AsyncTp parse_async_tp(std::string_view text);

/// One collective that becomes a ring with its products.
struct Ring {
  int32_t collective = -1;
  std::vector<int32_t> dots;  // all readers of an all-gather, or the one product that a reduce-scatter reduces
  bool gather = true;
  double plain_seconds = 0, ring_seconds = 0;  // predicted, with the products: as they are, and as a ring
};

/// Chooses all-gathers whose readers are all products that do not contract the gathered dim, and reduce-scatters of a
/// product with no other reader. Shards must be even. `declined` gets those for which kAuto predicts no gain.
std::vector<Ring> choose_rings(const Graph& g, const Mesh& mesh, const Machine& machine, AsyncTp mode,
                               std::vector<Ring>* declined = nullptr);

/// The graph with these rings. New permute_ranks nodes get sites after the largest one. Each row of a gathered product
/// has the same bits as before. A ring sums scattered block b over ranks b + 1, b + 2, ..., b: the same order in every
/// run, but not that of reduce_scatter, which is 0, 1, 2, .... `steps` gets, by the site of each new permute_ranks, the
/// site of the collective that it replaces.
Ref<Graph> apply_rings(const Graph& g, const std::vector<Ring>& rings, std::map<int64_t, int64_t>* steps = nullptr);

}  // namespace weft::dist
