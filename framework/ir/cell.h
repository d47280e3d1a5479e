// Cell: the state behind Parameter and Buffer: {type, initialiser graph, storage or none}, materialised at first read.
#pragma once
#include "framework/base/mutex.h"
#include "framework/ir/graph.h"

namespace weft {

struct Cell;

/// Where a cell's value is while Cell::value is undefined: in shards on the ranks of a mesh.
struct RemoteValue : RefCounted {
  /// The whole value.
  virtual Tensor gather(const Cell& cell) = 0;
};

struct Cell final : RefCounted {
  std::string name;  // path stamped by Module::named_parameters()
  TensorType type;
  Ref<Graph> init;             // no inputs, one output; null once nothing can be re-made from it
  Tensor value;                // undefined until materialised
  Ref<RemoteValue> remote;     // if set, the value unless `value` is defined, which then is newer
  Ref<RefCounted> leaf;        // dispatch/tape.h: the tape's leaf for this cell
  bool requires_grad = false;  // parameters that are not frozen
  bool is_parameter = false;
  bool torn = false;  // a step was aborted half-way through its writes: not readable until set again
};

}  // namespace weft
