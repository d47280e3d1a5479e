// The result of fusion, and the reasons why it joined no more launches.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "framework/ir/graph.h"

namespace weft {

/// One launch of a fused graph.
struct FusionGroup {
  int32_t node = -1;  // node of the fused graph
  bool fused = false;
  std::vector<int32_t> nodes;   // nodes of the graph before fusion, which it computes
  std::vector<int32_t> clones;  // nodes that it recomputes, which other launches compute too
  double bytes = 0;             // operands and results
  double flops = 0;
};

struct FusionReport {
  Ref<Graph> before, after;  // null: nothing was fused
  std::vector<FusionGroup> groups;
  /// Two launches that would have moved fewer bytes as one. Most bytes first, each pair once.
  struct Refused {
    int32_t a = 0, b = 0;      // groups
    int32_t from = 0, to = 0;  // nodes of the graph before, one of each group
    std::string reason;        // follows "not one kernel: "
    double bytes = 0;
  };
  std::vector<Refused> refused;
  /// The pairs that a list of traffic names: `refused`, and library calls beside generated kernels. The sum of their
  /// bytes counts the write of a value once, if no launch outside these pairs reads it, and the read of each launch
  /// once. Pairs that would add nothing to the sum are left out. Most bytes first.
  std::vector<Refused> separate;
  double bytes_before = 0, bytes_after = 0;  // moved by all launches
  int32_t launches_before = 0, launches_after = 0;
};

/// Whether two nodes of the graph before fusion are in one kernel; if not, the rule that prevents it and its cost in
/// bytes.
std::string why(const FusionReport& r, int32_t a, int32_t b);
/// The same for nodes written "%12", "mul", "model.cc:43" or "mul at model.cc:43". If several match, it takes two that
/// are in one kernel, otherwise the two whose separation costs most. Throws InvalidArgument if none matches.
std::string why(const FusionReport& r, std::string_view a, std::string_view b);
/// "cumsum is a library call".
std::string library_reason(const Node& n);
/// "866 -> 124 launches, 757.2 -> 206.2 MB through memory".
std::string fusion_summary(const FusionReport& r);

}  // namespace weft
