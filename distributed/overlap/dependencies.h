// Dependencies between the nodes of a rank's graph, for passes that reorder its collectives.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "framework/ir/rewrite.h"

namespace weft::dist {

/// Heavy nodes keep their order unless a pass moves them. Light nodes (views, constants, cells, coordinates, and values
/// computed from these alone) are placed before the first heavy node that needs them.
struct Dependencies {
  explicit Dependencies(const Graph& g);
  std::vector<bool> live, light;  // index: node
  std::vector<int32_t> ready;     // node -> the last heavy node that its operands need, or -1
  std::vector<int32_t> use;       // node -> the first heavy node that needs its results; g.size() if there is none
  /// The heavy nodes that must come before a node, each once. These are its nearest heavy operands and the readers
  /// of a cell whose new value it computes.
  std::vector<std::vector<int32_t>> before;
};

/// Copies a node when its value is first needed, operands first.
class CopyOnDemand {
 public:
  /// `make` may add a node (and its operands) other than by a copy; it then returns true.
  CopyOnDemand(const Graph& g, Rewriter& r, std::function<bool(int32_t id)> make = nullptr)
      : g_(g), r_(r), make_(std::move(make)) {}
  /// The value of `v` in the new graph.
  Value operator()(Value v);
  /// Copies all nodes that inputs, outputs and cell writes need.
  void copy_results();

 private:
  const Graph& g_;
  Rewriter& r_;
  std::function<bool(int32_t)> make_;
};

/// Equal ops on equal operands; shapes may differ. A decision about nodes of one graph then applies to the other.
bool same_structure(const Graph& a, const Graph& b);

}  // namespace weft::dist
