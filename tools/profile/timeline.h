// What the threads of a step did, and when, as a picture. For every event, see the trace in ui.perfetto.dev.
#pragma once
#include <string>

#include "compiler/exec/profile.h"

namespace weft::profiler {

/// An SVG with a row for each thread, on a mesh for each thread of each rank, and a bar for what runs there: launches
/// by phase, parts of parallel loops, collectives, waiting for them, and the host's own work. Bars of one kind with
/// less than a pixel between them are one. Shows at most 32 rows, and says how many there are. Throws InvalidArgument
/// for a profile without events.
std::string timeline_svg(const Profile& profile, const std::string& title);

}  // namespace weft::profiler
