// The profile of a step as text and as JSON.
#pragma once
#include <string>

#include "tools/profile/rows.h"

namespace weft::profiler {

/// The step: title, time, the machine's rates.
std::string head_text(const StepRecord& record);
/// The rows with calls, time, bytes, FLOPs, rates, share of the roofline and bound; their sum, the overhead, and the
/// step.
std::string rows_text(const StepRecord& record, By by);
/// Compute, memory, communication and overhead of the step, and the classes' shares of FLOPs and of time.
std::string parts_text(const StepRecord& record);
/// The copies and unfused pairs of kernels that cost the most traffic, with the reason; empty: there are none.
std::string missed_text(const StepRecord& record);
/// The classes' shares and the step's time if some classes were faster.
std::string what_if_text(const StepRecord& record, const Speedups& speedups);

/// {"title", "device", "machine": {...}, "step_us", "all": {...}, "overhead_us", "comparable", "by", "rows": [...],
/// "parts_us": {...}, "classes": [...], "what_if"?: {"launches_us", "launches_before_us", "step_us", "step_before_us",
/// "predicted", "classes"}, "missed": [{"kind", "from", "to", "reason", "bytes",
/// "times"}, ...],
/// "memory": {"peak_bytes", "measured_peak_bytes", "peak_launch", "holders": [...]}}.
std::string profile_json(const StepRecord& record, By by, const Speedups& speedups);

}  // namespace weft::profiler
