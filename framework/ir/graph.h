// Graph: one type from capture to executable. Nodes are stored in insertion order, which is a topological order (SSA).
// Nodes do not change once added; a pass builds a new Graph (see rewrite.h).
#pragma once
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/origin.h"
#include "framework/base/small_vec.h"
#include "framework/ir/attr.h"
#include "framework/tensor/tensor.h"

namespace weft {

struct OpDef;
struct Cell;

/// A copy of the text that lives as long as the process; equal texts give equal pointers. For Node::scope and files.
const char* intern(std::string_view text);

/// One result of one node.
struct Value {
  int32_t node = -1;
  int32_t index = 0;
  bool valid() const { return node >= 0; }
  friend bool operator==(Value, Value) = default;
  friend auto operator<=>(Value, Value) = default;
};

struct Node {
  const OpDef* op = nullptr;
  SmallVec<Value, 3> inputs;
  Attrs attrs;
  SmallVec<TensorType, 1> outputs;
  SourceLine line;
  const char* scope = "";   // interned path of name scopes, e.g. "blocks.0/attn"
  bool no_grad = false;     // recorded under NoGrad: gradients do not pass through
  bool backward = false;    // made by reverse mode; like line and scope, not part of the structure
  bool recomputed = false;  // a copy made so that its original need not be kept: must not be merged with it
};

/// A cell and the value that it gets when the graph has run.
struct CellWrite {
  int32_t cell = 0;  // index into cells
  Value value;
  friend bool operator==(const CellWrite&, const CellWrite&) = default;
};

class Graph final : public RefCounted {
 public:
  Graph() = default;
  Graph(const Graph&) = default;

  /// Appends a node; its inputs must be results of earlier nodes of this graph.
  int32_t add(Node node);
  const Node& node(int32_t id) const { return nodes_[id]; }
  const Node& node(Value v) const { return nodes_[v.node]; }
  int32_t size() const { return static_cast<int32_t>(nodes_.size()); }
  const TensorType& type(Value v) const { return nodes_[v.node].outputs[v.index]; }

  std::vector<Value> inputs;      // results of the structural op "input", in argument order
  std::vector<Ref<Cell>> cells;   // read by the structural op "cell" {index}
  std::vector<Tensor> captured;   // read by the structural op "captured" {index}: concrete tensors closed over
  std::vector<CellWrite> writes;  // committed together after the graph has run
  std::vector<Value> outputs;
  std::string stage = "captured";  // captured | joint | partitioned | fused | scheduled

  Value add_input(const TensorType& type);
  Value add_cell(Ref<Cell> cell);
  Value add_captured(Tensor t);
  int find_cell(const Cell* cell) const;  // index in cells or -1

  /// Text that parse_graph reads back to an equal graph.
  std::string to_string() const;
  /// Graphviz.
  std::string to_dot() const;
  /// Serialised weft.GraphProto (framework/ir/graph.proto).
  std::string to_proto() const;

 private:
  std::deque<Node> nodes_;
};

/// Equal structure: ops, attributes, types, inputs, outputs, writes; not lines, scopes or cell contents.
bool structurally_equal(const Graph& a, const Graph& b);
/// Hash of the structure that structurally_equal compares.
uint64_t structural_hash(const Graph& g);

}  // namespace weft

#include "framework/ir/cell.h"  // after Graph, which it needs: a Graph owns cells
