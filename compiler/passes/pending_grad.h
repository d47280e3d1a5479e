// Nodes that passes must not change while the graph still holds nodes whose result depends on how their operands were
// computed (grad).
#pragma once
#include <vector>

#include "framework/ir/op_def.h"

namespace weft {

class PendingGrad {
 public:
  explicit PendingGrad(const Graph& g) : keep_(g.size()) {
    for (int32_t id = 0; id < g.size(); ++id) {
      const Node& n = g.node(id);
      if (!n.op->is(kReadsTape)) continue;
      none_ = false;
      for (size_t i = 1; i < n.inputs.size(); ++i) keep_[n.inputs[i].node] = true;
    }
  }
  /// There is no such node, so rewrites need no care.
  bool none() const { return none_; }
  /// A pending node differentiates with respect to this node: it must be neither replaced nor merged.
  bool keeps(int32_t id) const { return keep_[id]; }

 private:
  std::vector<bool> keep_;
  bool none_ = true;
};

}  // namespace weft
