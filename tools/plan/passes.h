// The work of a rank as passes over two resources: compute and communication.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace weft::planner {

/// One piece of a rank's work. In order, it gathers ahead, computes, waits for collectives, and reduces behind.
struct Pass {
  std::string name;
  double gather = 0, compute = 0, blocking = 0;  // seconds
  double hidden = 0;                             // hidden seconds of the collectives of `blocking`
  double reduce = 0;
  double gather_bytes = 0, blocking_bytes = 0, reduce_bytes = 0;  // the larger of operand and result
};
struct TimelineSpan {
  // kInPass: collectives that a pass waits for, including their part that compute hides.
  enum Row : uint8_t { kCompute, kInPass, kNetwork, kExposed } row = kCompute;
  double from = 0, to = 0;
  std::string name = {};  // "gather forward 1"
  double bytes = 0;       // bytes of a collective
};
struct Timeline {
  double seconds = 0, compute = 0, blocking = 0, network = 0;  // network: gathers and reductions
  double exposed = 0;                                          // seconds that the rank waits for the network
  std::vector<TimelineSpan> spans;                             // only if asked for
};
/// Runs passes on two resources: the gather of a pass starts with the pass before it, its reduction when it has ended.
Timeline run_passes(const std::vector<Pass>& passes, bool spans = false);

}  // namespace weft::planner
