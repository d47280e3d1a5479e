// Cell: the state behind Parameter and Buffer: {type, initialiser graph, storage or none}, materialised at first read.
#pragma once
#include "framework/base/mutex.h"
#include "framework/ir/graph.h"

namespace weft {

struct Cell final : RefCounted {
  std::string name;  // path stamped by Module::named_parameters()
  TensorType type;
  Ref<Graph> init;             // no inputs, one output; null once nothing can be re-made from it
  Tensor value;                // undefined until materialised
  Ref<RefCounted> leaf;        // dispatch/tape.h: the tape's leaf for this cell
  bool requires_grad = false;  // parameters that are not frozen
  bool is_parameter = false;
  bool torn = false;  // a step was aborted half-way through its writes: not readable until set again
};

}  // namespace weft
