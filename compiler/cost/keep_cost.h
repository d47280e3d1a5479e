// The cost of keeping each forward value of a training step until the backward part reads it, and the cost of computing
// it again there. This runs before fusion and assumes it: chains of pointwise ops, views and row reductions run in
// registers, so only values that some op needs in memory cost traffic.
//
// The unit is a sixteenth of a byte moved, at the rates of planned_machine() for the graph's device.
#pragma once
#include <cstdint>
#include <vector>

#include "compiler/cost/machine/machine.h"
#include "framework/ir/graph.h"

namespace weft {

inline constexpr int64_t kCostPerByte = 16;

enum class Redo : uint8_t {
  kNever,      // arguments, cells, side effects, and values too small to be worth a launch
  kFree,       // a view, a number, an index row
  kCheap,      // pointwise: runs inside the kernel that reads it
  kReduce,     // a reduction
  kExpensive,  // contraction, indexing, sorting, scan, random bits
};

struct NodeCost {
  bool backward = false;  // made by reverse mode, or depends on such a node
  bool always = false;    // a small constant: always present, costs nothing
  bool alias = false;     // a view that shows its operand's memory
  Redo redo = Redo::kNever;
  int32_t level = 0;  // number of results that must be complete before: equal levels may share a kernel
  int64_t again = 0;  // cost to compute once more
};

struct ValueCost {
  Value base;           // the value whose memory it shows: itself unless an alias
  int64_t bytes = 0;    // size of a base in the arena, which is live from forward to backward if it is kept; else 0
  int64_t keep = 0;     // cost to write (unless some op needs it in memory anyway) and read again
  bool stored = false;  // some forward op needs it in memory
  bool stored_after = false;  // some backward op needs it in memory
};

class KeepCosts {
 public:
  /// Nodes whose results have at most `small` bytes are kept (and are constants, if made from constants alone).
  explicit KeepCosts(const Graph& g, int64_t small = 4096);
  const NodeCost& node(int32_t id) const { return nodes_[id]; }
  const ValueCost& value(Value v) const { return values_[first_[v.node] + v.index]; }
  const Machine& machine() const { return machine_; }
  /// Seconds that a cost stands for.
  double seconds(int64_t cost) const {
    return static_cast<double>(cost) / kCostPerByte / (machine_.bytes * machine_.reached);
  }
  /// Whether some node was made by reverse mode.
  bool any_backward() const { return any_backward_; }
  /// Whether the op needs its operands in memory: contraction, indexing, sort, scan.
  static bool reads_memory(const OpDef& op);

 private:
  ValueCost& at(Value v) { return values_[first_[v.node] + v.index]; }
  void classify(const Graph& g);
  void find_stored(const Graph& g);
  void price(const Graph& g);

  const int64_t small_;
  const Machine& machine_;
  std::vector<NodeCost> nodes_;
  std::vector<ValueCost> values_;
  std::vector<int32_t> first_;  // each node's first entry in values_
  bool any_backward_ = false;
};

}  // namespace weft
