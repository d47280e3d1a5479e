// The random generators' count of random ops outside compiled functions, which is not in their cells. Saving and
// loading (models/save) need it. It is separate from generator.h because most files include that header.
#pragma once
#include <cstdint>

namespace weft::internal {

/// The number of random ops that this process has called outside compiled functions since manual_seed (generator.cc).
int64_t random_ops_outside();
void set_random_ops_outside(int64_t count);

}  // namespace weft::internal
