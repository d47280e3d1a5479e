// Compares two records: faster, slower, new and removed launches.
#pragma once
#include <string>
#include <vector>

#include "tools/profile/rows.h"

namespace weft::profiler {

/// The launches of one name in both records. If one record has no such launches, the row is new or gone.
struct DiffRow {
  std::string name;
  StepRecord::WorkSum before, after;
  double change_us() const { return after.measured_us - before.measured_us; }
};
/// The rows, the largest change of time first.
std::vector<DiffRow> diff_rows(const StepRecord& before, const StepRecord& after, By by);

/// The steps, a sentence that records have one measurement of each time, and the rows in groups: faster, slower, new,
/// gone. Rows that change by less than a thousandth of the step and keep their calls and bytes are only counted.
std::string diff_text(const StepRecord& before, const StepRecord& after, By by);
/// {"by", "step_us": [before, after], "launches_us": [...], "comparable": [...], "bytes": [...], "peak_bytes": [...],
/// "rows": [{"name", "calls": [...], "us": [...], "bytes": [...], "flops": [...]}]}.
std::string diff_json(const StepRecord& before, const StepRecord& after, By by);

}  // namespace weft::profiler
