// WEFT_DUMP: each kernel's loop IR and C++ source, in files named as report() names kernels.
#pragma once
#include <string>

#include "compiler/exec/plan.h"

namespace weft::internal {

/// The name of a kernel's files, without ending: its name and a hash of what it computes.
std::string dump_name(const FusedKernel& k);

/// The files of one kernel, as dump_kernels writes them.
void dump_kernel(const FusedKernel& k);
/// Writes NAME.loop_ir (the user's ops, the loop IR, the numbers it is launched with) and NAME.cc (its source, which
/// compiles alone) for each kernel of the plan to the folder that WEFT_DUMP names; nothing if it is not set. Throws
/// Unavailable if the folder cannot be written.
void dump_kernels(const Plan& plan);

}  // namespace weft::internal
