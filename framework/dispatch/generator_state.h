// What the random generators count besides their cells: random ops outside compiled functions. For saving and loading
// (models/save). Not part of generator.h, which most files include.
#pragma once
#include <cstdint>

namespace weft::internal {

/// The number of random ops that this process has called outside compiled functions since manual_seed (generator.cc).
int64_t random_ops_outside();
void set_random_ops_outside(int64_t count);

}  // namespace weft::internal
