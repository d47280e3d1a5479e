// The bytes a graph moves through memory if each node is one launch: the measure for passes that remove traffic.
#pragma once
#include "framework/ir/graph.h"

namespace weft {

struct Traffic {
  int32_t nodes = 0;
  int32_t launches = 0;  // nodes that compute: neither structural nor views
  double bytes = 0;      // operands and results of launches; a broadcast operand counts as its source
};
Traffic traffic_of(const Graph& g);

}  // namespace weft
