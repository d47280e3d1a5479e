// Builds a new graph from an old one: the only way to change a graph.
#pragma once
#include <functional>
#include <unordered_map>

#include "framework/ir/graph.h"
#include "framework/ir/op_def.h"

namespace weft {

/// A graph of one node: the inputs are its operands, of these types, and the outputs are its results.
Ref<Graph> graph_of_node(Node n, std::span<const TensorType> operands);

/// Copies nodes of `from` into a new graph and replaces their operands. Call copy() for each kept node in order (or
/// map() for a replaced value), then finish().
class Rewriter {
 public:
  explicit Rewriter(const Graph& from);
  /// The new value for `old`; it is a bug of the pass if there is none yet.
  Value operator()(Value old) const;
  bool has(Value old) const;
  /// Copies one node and maps its operands.
  int32_t copy(int32_t id);
  /// Makes `now` (a value of the new graph) the replacement of `old`.
  void map(Value old, Value now);
  Graph& graph() { return *to_; }
  /// Carries over inputs, cells, captured, writes, outputs, stage. Inputs are always kept.
  Ref<Graph> finish();

 private:
  const Graph& from_;
  Ref<Graph> to_;
  std::vector<SmallVec<Value, 1>> values_;
};

/// For each node, the nodes that use any of its results, in order (a node once per use).
std::vector<std::vector<int32_t>> users(const Graph& g);

/// Checks every invariant of a graph and of its stage; throws weft::Error(kInternal) with node, op and rule.
void verify(const Graph& g);

/// Reads the text of Graph::to_string(). Throws InvalidArgument with line number, the text found and the text needed.
Ref<Graph> parse_graph(std::string_view text, const OpTable& ops);

}  // namespace weft
