// Builds a new graph from an old one: the only way to change a graph.
#pragma once
#include <functional>
#include <map>
#include <unordered_map>

#include "framework/ir/graph.h"
#include "framework/ir/op_def.h"

namespace weft {

/// Copies nodes of `from` into the graph `to` and replaces their operands.
class NodeCopier {
 public:
  NodeCopier(const Graph& from, Graph& to) : from_(from), to_(to), values_(from.size()) {}
  /// The new value for `old`; it is a bug of the pass if there is none yet.
  Value operator()(Value old) const;
  bool has(Value old) const;
  /// Copies one node and maps its operands. change(node) may change the copy before it is added.
  template <class Change>
  int32_t copy(int32_t id, const Change& change) {
    Node n = from_.node(id);
    for (Value& v : n.inputs) v = (*this)(v);
    change(n);
    const int32_t now = to_.add(std::move(n));
    map(id, now);
    return now;
  }
  int32_t copy(int32_t id) {
    return copy(id, [](Node&) {});
  }
  /// The new value for `old`. Copies its node, operands first, if there is none yet.
  Value bring(Value old);
  /// Makes `now` (a value of the new graph) the replacement of `old`.
  void map(Value old, Value now);
  /// Makes the results of node `now` the replacements of the results of node `old`.
  void map(int32_t old, int32_t now);

 protected:
  const Graph& from_;

 private:
  Graph& to_;
  std::vector<SmallVec<Value, 1>> values_;
};

/// Copies nodes into a new graph. Call copy() for each kept node in order (or map() for a replaced value), then
/// finish().
class Rewriter : public NodeCopier {
 public:
  explicit Rewriter(const Graph& from) : Rewriter(from, make_ref<Graph>()) {}
  Graph& graph() { return *to_; }
  /// Carries over inputs, cells, captured, writes, outputs, stage. Inputs are always kept.
  Ref<Graph> finish();

 private:
  Rewriter(const Graph& from, Ref<Graph> to);

  Ref<Graph> to_;
};

/// A copy of the graph. change(node) may change each copied node, whose operands are mapped.
template <class Change>
Ref<Graph> changed_copy(const Graph& g, const Change& change) {
  Rewriter r(g);
  for (int32_t id = 0; id < g.size(); ++id) r.copy(id, change);
  return r.finish();
}

/// A copy of the graph in which the result of each node in `found` is replaced by emit(rewriter, node, entry).
template <class Found, class Emit>
Ref<Graph> replace_results(const Graph& g, const std::map<int32_t, Found>& found, const Emit& emit) {
  Rewriter r(g);
  for (int32_t id = 0; id < g.size(); ++id) {
    auto it = found.find(id);
    if (it == found.end()) {
      r.copy(id);
    } else {
      r.map({id, 0}, emit(r, g.node(id), it->second));
    }
  }
  return r.finish();
}

/// A graph of the node `n` alone. Its operands are arguments of these types.
Ref<Graph> graph_of_one(Node n, std::span<const TensorType> in);

/// For each node, the nodes that use any of its results, in order (a node once per use).
std::vector<std::vector<int32_t>> users(const Graph& g);

/// For each node, the last node that uses any of its results: g.size() if an output or a cell does, -1 if nothing does.
std::vector<int32_t> last_uses(const Graph& g);

/// Checks every invariant of a graph and of its stage; throws weft::Error(kInternal) with node, op and rule.
void verify(const Graph& g);

/// Reads the text of Graph::to_string(). Throws InvalidArgument with line number, the text found and the text needed.
Ref<Graph> parse_graph(std::string_view text, const OpTable& ops);

/// Reads the bytes of Graph::to_proto() and verifies the graph. As in text, a captured tensor of more than 16 elements
/// becomes zeros. Throws InvalidArgument with the place in the message, the value found and the value needed. This
/// function and Graph::to_proto() are in //framework/ir:proto.
Ref<Graph> parse_graph_proto(std::string_view bytes, const OpTable& ops);

}  // namespace weft
