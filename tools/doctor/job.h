// The job that this process belongs to, by its environment variables.
#pragma once
#include "distributed/control/identity.h"
#include "tools/doctor/facts.h"

namespace weft::tools {

/// Adds section "job": launcher, rank and size, the coordination service, whether there is a token, and the network
/// address for a job across hosts. Incomplete variables become a fact with their error. The token is not shown.
void add_job(FactList& facts, const control::Environment& variables);

}  // namespace weft::tools
