// Runs a kernel without a compiler: instruction by instruction over tiles of lanes, on the prebuilt vector kernels of
// ops/kernels. It has the bits of generated code for the same instruction set: its reference in tests, and what
// machines without a compiler run.
#pragma once
#include "compiler/loop_ir/loop_ir.h"

namespace weft::loop_ir {

/// Fn of `kernel`: outer points o0, o0 + step, ... below o1 on lanes [l0, l1), on the calling thread. kAcross needs no
/// scratch in args.
void interpret(const Kernel& kernel, const Args& args, int64_t o0, int64_t o1, int64_t step, int64_t l0, int64_t l1);

}  // namespace weft::loop_ir
