// The job that the environment variables of this process say it is in.
#pragma once
#include "distributed/control/identity.h"
#include "tools/facts.h"

namespace weft::tools {

/// Adds section "job": what has started the processes, rank and size, the coordination service, whether there is a
/// token, and the network address that a job between hosts uses. Variables that are set in part are a fact with their
/// error. The token is not shown.
void add_job(Facts& facts, const control::Environment& variables);

}  // namespace weft::tools
