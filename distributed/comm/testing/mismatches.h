// For tests: ranks that start different collectives get the sentences of thread ranks.
#pragma once
#include "distributed/comm/testing/support.h"

namespace weft::testing {

/// Runs pairs of collectives that do not fit, each in a new world of two processes.
void check_mismatches(const MakeWorld& make);

}  // namespace weft::testing
