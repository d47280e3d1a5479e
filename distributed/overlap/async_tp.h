// Asynchronous tensor parallelism (Wang et al., "Overlap communication with dependent computation via decomposition",
// 2023): a product after an all-gather, or before a reduce-scatter, becomes a ring of one smaller product for each
// rank. While a rank computes one product, it sends a piece of the operand or of the sum to its neighbour.
//
// The results of kOn and kOff differ in their last digits: see apply_rings().
#pragma once
#include <map>
#include <string_view>
#include <vector>

#include "distributed/overlap/network.h"

namespace weft::dist {

enum class AsyncTp : uint8_t {
  kAuto,  // where the cost model predicts a gain; if cores move the data, a ring hides only network time
  kOn,    // wherever the pattern matches
  kOff,
};

/// "auto", "on" or "off"; throws InvalidArgument for others.
AsyncTp parse_async_tp(std::string_view text);

/// One collective that becomes a ring with its products.
struct ProductRing {
  int32_t collective = -1;
  std::vector<int32_t> dots;  // all readers of an all-gather, or the one product that a reduce-scatter reduces
  bool gather = true;
  double plain_seconds = 0,
         ring_seconds = 0;  // predicted times of the collective and its products: unchanged, and as a ring
};

/// Chooses all-gathers that are read only by products without a contraction over the gathered dim, and reduce-scatters
/// of a product with no other reader. Shards must be even. `declined` gets the rings for which kAuto predicts no gain.
std::vector<ProductRing> choose_rings(const Graph& g, const Mesh& mesh, const Machine& machine, AsyncTp mode,
                                      std::vector<ProductRing>* declined = nullptr);

/// The graph with these rings. New permute_ranks nodes get sites after the largest site. Each row of a gathered product
/// keeps its bits. A ring sums scattered block b over ranks b + 1, b + 2, ..., b in every run, whereas reduce_scatter
/// sums over ranks 0, 1, 2, .... `steps` gets, by the site of each new permute_ranks, the site of the collective that
/// it replaces.
Ref<Graph> apply_rings(const Graph& g, const std::vector<ProductRing>& rings,
                       std::map<int64_t, int64_t>* steps = nullptr);

}  // namespace weft::dist
