// Overlap: list scheduling of a local graph over two resources, computation and the network of each group of ranks. A
// collective begins when its operand is ready and ends when its result is needed; while it runs, work that comes later
// in the program may go first. Times are predicted (network.h), so the schedule depends on the graph alone.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "distributed/overlap/network.h"

namespace weft::dist {

struct OverlapOptions {
  int64_t prefetch_bytes =
      0;  // of parameters gathered ahead; 0: as much as the largest layer (equal outer scope) gathers
  int64_t memory_bytes =
      0;  // live at once, estimated; 0: what the graph needs as it is, a fiftieth of that, and prefetch_bytes
  int look_ahead = 256;  // number of nodes ahead that are searched for work
};

/// One step of a schedule.
struct Event {
  enum Kind : uint8_t { kRun, kStart, kWait } kind = kRun;
  int32_t node = -1;
};

/// One collective in a schedule.
struct Hidden {
  int64_t site = 0;
  double seconds = 0, exposed = 0;  // predicted: of the collective, and the part in which the rank waits for it
  std::string by;                   // "dot at model.cc:50 and 3 more", or empty
};

struct Schedule {
  std::vector<Event> events;          // heavy nodes of Flow in their new order
  std::vector<Hidden> hidden;         // in order of start
  double compute = 0;                 // predicted seconds of one step, in all: computation
  double communication = 0;           // ... of collectives one after another
  double exposed = 0;                 // ... in which the rank waits
  int64_t peak_before = 0, peak = 0;  // estimated live bytes besides cells and arguments, before fusion
};

/// The collectives have their sites already. If no schedule fits the memory, all collectives stay in place.
Schedule schedule(const Graph& g, const Mesh& mesh, const Machine& machine, const OverlapOptions& options = {});

/// The graph in this order, with collectives as start and wait; for any graph of the same structure.
Ref<Graph> apply_schedule(const Graph& g, const Schedule& s);

}  // namespace weft::dist
