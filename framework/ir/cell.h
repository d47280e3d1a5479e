// Cell: the state of a Parameter or Buffer: a type, an initialiser graph, and a value that is materialised at first
// read.
#pragma once
#include "framework/ir/cell_gate.h"
#include "framework/ir/graph.h"

namespace weft {

struct Cell;

/// The value of a cell that is stored elsewhere: as shards on the ranks of a mesh.
struct RemoteValue : RefCounted {
  /// Assembles the whole value.
  virtual Tensor gather(const Cell& cell) = 0;
};

struct Cell final : RefCounted {
  std::string name;  // path stamped by Module::named_parameters()
  TensorType type;
  Ref<Graph> init;             // no inputs, one output; null once nothing can be re-made from it
  Tensor value;                // undefined until materialised
  Ref<RemoteValue> remote;     // if set, holds the value; a defined `value` is newer, or the copy gathered from it
  Ref<RefCounted> leaf;        // dispatch/tape.h: the tape's leaf for this cell
  bool requires_grad = false;  // parameters that are not frozen
  bool is_parameter = false;
  bool torn = false;      // a step failed while it wrote this cell: not readable until it is set again
  mutable CellGate gate;  // for `value`, `remote`, `leaf` and `torn`
};

}  // namespace weft
