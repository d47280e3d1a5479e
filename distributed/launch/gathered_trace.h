// The traces of the processes of a job as one.
#pragma once
#include "framework/base/tracer.h"

namespace weft::dist {

/// A collective. Returns the trace of all processes, in times of the first process's clock, to the first process;
/// returns `mine` to others, and without a job.
weft::internal::Trace gather_traces(weft::internal::Trace mine);

}  // namespace weft::dist
