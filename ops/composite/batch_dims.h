// Finds the dims of a graph's values that have the rows of a batch: an analysis of the body of accumulate().
#pragma once
#include <map>
#include <utility>
#include <vector>

#include "framework/ir/graph.h"

namespace weft::internal {

/// Follows dim 0 of the first inputs of a graph through its nodes, forwards and backwards, by their dim maps, and into
/// the bodies of checkpoint, custom_grad and loop.
class BatchDims {
 public:
  /// The first `inputs` inputs have `rows` rows each in dim 0; 0-d ones have none. `g` must outlive this object.
  BatchDims(const Graph& g, size_t inputs, int64_t rows);

  /// The dims of a value, of the graph or of a body in it, that consist of the rows alone, or of the rows as the major
  /// factor and elements of a row as the minor factor. If there is one row, extents do not show these dims: then the
  /// value must be random, and it has the row if it meets a value of the batch in an elementwise op. The dim is the
  /// first of extent 1, otherwise 0.
  std::vector<int> of(const Graph& g, Value v);
  /// Whether the random results of a node meet values of the batch in an elementwise op.
  bool meets_batch(const Graph& g, int32_t id) const;

 private:
  int class_of(const Graph& g, Value v, int dim);
  int new_class();
  int find(int c);
  void join(int a, int b) { parent_[find(a)] = find(b); }
  void join_values(const Graph& a, Value v, int skipped, const Graph& b, Value w);
  void visit(const Graph& g, std::vector<bool> depends);
  void visit_body(const Graph& g, const Node& n, int32_t id, std::vector<bool>& depends);

  const int64_t rows_;
  std::map<std::pair<const Graph*, Value>, int> first_;  // class of dim 0; the classes of the other dims follow
  std::map<const Graph*, std::vector<bool>> depends_;    // node -> computed from the batch
  std::vector<int> parent_;                              // parents of classes
  int batch_ = -1;
};

}  // namespace weft::internal
