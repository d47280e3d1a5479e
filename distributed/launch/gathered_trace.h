// The traces of the processes of a job as one.
#pragma once
#include "framework/base/tracer.h"

namespace weft::dist {

/// The trace of all processes, with the times of the first one's clock; without a job, `mine`. A collective.
Trace gather_traces(Trace mine);

}  // namespace weft::dist
