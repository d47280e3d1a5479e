// The traces of the processes of a job as one.
#pragma once
#include "framework/base/tracer.h"

namespace weft::dist {

/// In the first process, the trace of all processes, with the times of its clock; in others, and without a job, `mine`.
/// A collective.
Trace gather_traces(Trace mine);

}  // namespace weft::dist
