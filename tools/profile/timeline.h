// The activity of a step's threads over time, as a picture. For every event, see the trace in ui.perfetto.dev.
#pragma once
#include <string>

#include "compiler/exec/record/profile.h"

namespace weft::profiler {

/// An SVG with a row for each thread, on a mesh for each thread of each rank, and a bar for each activity: launches by
/// phase, parts of parallel loops, collectives, waiting for collectives, and the host's own work. Bars of one kind with
/// less than a pixel between them are merged. Shows at most 32 rows, and the number of all rows. Throws InvalidArgument
/// for a profile without events.
std::string timeline_svg(const Profile& profile, const std::string& title);

}  // namespace weft::profiler
