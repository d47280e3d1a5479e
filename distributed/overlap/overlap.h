// Overlap: list scheduling of a rank's graph over two resources, computation and the network of each group of ranks.
// A collective starts when its operand is ready; the rank waits for it when its result is needed. In between, later
// work may run first. Costs come from the network model, so the schedule is a function of the graph.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "distributed/overlap/network.h"

namespace weft::dist {

struct OverlapOptions {
  /// Limit of the bytes of parameters that are gathered ahead of use, and of a gradient that is computed ahead of its
  /// place; 0: the bytes that most layers (equal paths up to a number) gather.
  int64_t prefetch_bytes = 0;
  /// Limit of estimated live bytes; 0: the peak without overlap plus 2 % plus prefetch_bytes.
  int64_t memory_bytes = 0;
  int look_ahead = 256;  // how many nodes ahead to search for work
};

/// One entry of a schedule.
struct ScheduleEvent {
  enum ScheduleEventKind : uint8_t { kRun, kStart, kWait } kind = kRun;
  int32_t node = -1;
};

/// One collective in a schedule.
struct HiddenCollective {
  int64_t site = 0;
  double seconds = 0, exposed = 0;  // predicted duration, and the part of it in which the rank waits
  std::string by;                   // "dot at model.cc:50 and 3 more", or empty
};

struct OverlapSchedule {
  std::vector<ScheduleEvent> events;     // heavy nodes of Dependencies in their new order
  std::vector<HiddenCollective> hidden;  // the collectives in order of start
  double compute = 0;                    // predicted seconds of computation in one step
  double communication = 0;              // predicted seconds of all collectives
  double exposed = 0;                    // predicted seconds in which the rank waits
  int64_t peak_before = 0, peak = 0;     // estimated live bytes besides cells and arguments, before fusion
};

/// `g` must have sites. If no schedule fits into the memory, all collectives stay in place.
OverlapSchedule schedule(const Graph& g, const Mesh& mesh, const Machine& machine, const OverlapOptions& options = {});

/// The graph in the order of `s`, with each collective split into start and wait. `g` may be any graph of the same
/// structure.
Ref<Graph> apply_schedule(const Graph& g, const OverlapSchedule& s);

}  // namespace weft::dist
