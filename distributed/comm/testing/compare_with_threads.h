// For tests: random collectives have the bits of thread ranks.
#pragma once
#include "distributed/comm/testing/random_collectives.h"

namespace weft::testing {

/// Runs `cases` random collectives from seed `first` on, some at once and waited for in random order; all ranks of the
/// communicator do so.
void compare_with_threads(Communicator& c, uint64_t first, int cases);

}  // namespace weft::testing
