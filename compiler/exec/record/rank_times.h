// Where the ranks of a mesh spend their time: a pure function of a trace's events.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "framework/base/tracer.h"

namespace weft {

/// Nanoseconds of one rank, or of a program without ranks (-1). The first four add up to RankTimes::total.
struct RankTime {
  int32_t rank = -1;
  int64_t compute = 0;        // in launches and eager ops, without their collectives
  int64_t communication = 0;  // in collectives that all their ranks had started: exposed, nothing else ran
  int64_t waiting = 0;        // in collectives that another rank had not started yet
  int64_t idle = 0;           // the rest: the host's own work, and nothing
  int64_t awaited = 0;        // total time that other ranks waited for this rank to start a collective
};

struct RankTimes {
  std::vector<RankTime> ranks;  // index: rank
  int64_t total = 0;            // from the first event to the end of the last
  int32_t critical = -1;  // the rank that was awaited longest; if none was, the rank with most compute; -1: no ranks

  /// A table of milliseconds for each of `steps` steps, and a sentence that names the critical rank.
  std::string to_string(int64_t steps = 1) const;
};

RankTimes rank_times(std::span<const TraceEvent> events);

}  // namespace weft
