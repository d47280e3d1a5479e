// What fusion did and why it did not do more.
#pragma once
#include <string>
#include <vector>

#include "framework/ir/graph.h"

namespace weft {

/// One launch of a fused graph.
struct FusionGroup {
  int32_t node = -1;  // of the fused graph
  bool fused = false;
  std::vector<int32_t> nodes;   // of the graph before, that it computes
  std::vector<int32_t> clones;  // that it computes again
  double bytes = 0;             // operands and results
  double flops = 0;
};

struct FusionReport {
  Ref<Graph> before, after;
  std::vector<FusionGroup> groups;
  /// Pairs of launches that would have saved bytes as one: most bytes first, a pair once.
  struct Refused {
    int32_t a = 0, b = 0;      // groups
    int32_t from = 0, to = 0;  // nodes of the graph before
    std::string reason;        // follows "not fused: "
    double bytes = 0;
  };
  std::vector<Refused> refused;
  double bytes_before = 0, bytes_after = 0;  // moved by all launches
  int32_t launches_before = 0, launches_after = 0;
};

}  // namespace weft
