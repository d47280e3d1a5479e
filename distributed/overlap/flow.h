// The data flow of a local graph as the passes of this folder see it: which nodes are work, and between which of them a
// value can be made.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "framework/ir/rewrite.h"

namespace weft::dist {

/// Heavy nodes keep their order unless a pass moves them. Light ones (views, constants, cells, coordinates, and values
/// computed from these alone) are placed before the first heavy node that needs them.
struct Flow {
  explicit Flow(const Graph& g);
  std::vector<bool> live, light;  // by node
  std::vector<int32_t> ready;     // by node: the last heavy node that its operands need, or -1
  std::vector<int32_t> use;       // by node: the first heavy node that needs its results; g.size() if only the end does
  /// By node: heavy nodes that must come before it, each once: nearest ones through light nodes, and those that read a
  /// cell whose new value this node computes.
  std::vector<std::vector<int32_t>> before;
};

/// Copies nodes when they are needed, operands first.
class Bringer {
 public:
  /// `make` emits a node that is not simply copied and returns true; it brings the operands of that node itself.
  Bringer(const Graph& g, Rewriter& r, std::function<bool(int32_t id)> make = nullptr)
      : g_(g), r_(r), make_(std::move(make)) {}
  /// The new value for `v`.
  Value operator()(Value v);
  /// Brings the values that outputs and cell writes need.
  void bring_results();

 private:
  const Graph& g_;
  Rewriter& r_;
  std::function<bool(int32_t)> make_;
};

/// Whether both have equal ops on equal operands, whatever the shapes: a decision for one then fits the other.
bool same_structure(const Graph& a, const Graph& b);

}  // namespace weft::dist
