// Collectives that one rank entered after the others.
#pragma once
#include <cstdint>
#include <optional>

#include "distributed/diagnose/job.h"
#include "distributed/diagnose/trace.h"

namespace weft::dist::diagnose {

struct LateEntry {
  int64_t by = 0;      // ns after the last of the others, less the time that the rank waited in collectives
  int64_t before = 0;  // when the last of the others entered
  int rank = -1;
  flight::Record record;  // record of the rank's start
};
/// The latest entry of all collectives that all their ranks have started up to `time`; `by` is 0 if there is none.
LateEntry latest_entry(const TracedJob& job, const Groups& groups, int64_t time);

/// The phase in which the rank spent more than half of the time between two moments, if there is one.
std::optional<flight::Phase> phase_during(const RankTrace& t, int64_t begin, int64_t end);

}  // namespace weft::dist::diagnose
