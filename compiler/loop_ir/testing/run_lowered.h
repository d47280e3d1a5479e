// Runs a lowered group on one thread with the interpreter: the plainest driver, against which others are tested.
#pragma once
#include "compiler/loop_ir/lower_group.h"

namespace weft::loop_ir {

/// Results are written into `out`; `tile` is the finished product [outer points, lanes] in f32 where there is a dot.
/// False if an index was out of range.
bool run_lowered(const Lowered& low, std::span<const StridedView> in, std::span<const StridedView> out,
                 const float* tile = nullptr);

}  // namespace weft::loop_ir
