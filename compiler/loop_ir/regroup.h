// Integer sums add the loop-invariant operands first: (lane + a) - b becomes lane + (a - b), one operation in the loop
// instead of two. Integers wrap, so the results are the same.
#pragma once
#include <span>

#include "compiler/loop_ir/loop_ir.h"

namespace weft::loop_ir {

/// Stage s of a kernel that is being lowered has the instructions before[s], then the loop with loop[s].
void regroup_sums(std::vector<Instr>* instrs, std::span<std::vector<int>> before, std::span<std::vector<int>> loop);

}  // namespace weft::loop_ir
