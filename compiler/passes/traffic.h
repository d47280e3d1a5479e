// What a graph moves through memory when each node is one launch: the yardstick of passes that remove traffic.
#pragma once
#include "framework/ir/graph.h"

namespace weft {

struct Traffic {
  int32_t nodes = 0;
  int32_t launches = 0;  // nodes that compute: neither structural nor views
  double bytes = 0;      // of operands and results of launches; a broadcast operand counts as what it repeats
};
Traffic traffic_of(const Graph& g);

}  // namespace weft
