// Runs a kernel without a compiler: one instruction at a time over tiles of lanes, with the prebuilt vector kernels of
// ops/kernels. The results have the same bits as generated code for the same instruction set. Tests use it as the
// reference, and machines without a compiler run it.
#pragma once
#include "compiler/loop_ir/loop_ir.h"

namespace weft::loop_ir {

/// Does the work of the KernelFunction of `kernel`: runs outer points o0, o0 + step, ... below o1 on lanes [l0, l1), on
/// the calling thread. kAcross needs no scratch in args.
void interpret(const Kernel& kernel, const Args& args, int64_t o0, int64_t o1, int64_t step, int64_t l0, int64_t l1);

}  // namespace weft::loop_ir
