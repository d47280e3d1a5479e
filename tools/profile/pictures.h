// The pictures of a profile: the roofline, and the memory of a step.
#pragma once
#include <string>

#include "tools/profile/rows.h"

namespace weft::profiler {

/// The machine's roofline with a mark for each row of the table, as SVG. Throws FailedPrecondition if the record has no
/// measured times.
std::string roofline_svg(const StepRecord& record, By by);

/// Memory over the launches and the lives of the ten largest holders at the peak, as SVG.
std::string memory_svg(const StepRecord& record);
/// The memory of a step as one page, with tables by holder, module and line.
std::string memory_html(const StepRecord& record);

}  // namespace weft::profiler
