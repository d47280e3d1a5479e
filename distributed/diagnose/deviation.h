// Where a rank left the planned sequence of collectives, and how.
#pragma once
#include <optional>

#include "distributed/diagnose/diagnosis.h"

namespace weft::dist::diagnose {

struct Deviation {
  Fault fault = Fault::kNone;
  std::string detail;
  const PlannedRow* planned = nullptr;  // null: nothing more was planned
  flight::Record started;               // the event that the rank started instead
  bool ended = false;                   // the step ended instead
  int skipped = 0;                      // planned collectives that the rank left out
  size_t rows = 0;                      // number of planned collectives
};

/// The first deviation of a rank up to `time`, or nothing.
std::optional<Deviation> deviation_of(const TracedJob& job, const RankTrace& t, int64_t time);

}  // namespace weft::dist::diagnose
