// Runs a lowered group on one thread with the interpreter. It is the simplest driver; other drivers are tested against
// it.
#pragma once
#include "compiler/loop_ir/lower_group.h"

namespace weft::loop_ir {

/// Writes the results to `out`. `tile` is the finished product [outer points, lanes] in f32, if there is a dot. Returns
/// false if an index was out of range.
bool run_lowered(const Lowered& low, std::span<const StridedView> in, std::span<const StridedView> out,
                 const float* tile = nullptr);

}  // namespace weft::loop_ir
