// Lists the facts of this machine: processor, memory, compilers.
#pragma once
#include "tools/facts.h"

namespace weft::tools {

/// Processors this process may run on, within its container's limit.
int usable_cores();

/// Bytes of memory, within the container's limit.
double usable_memory();

/// Adds sections "cpu", "memory", "system".
void add_machine(Facts& facts);

/// Adds section "weft": the instruction set, features and threads that Weft uses here, the compiler of kernels and
/// their cache. Throws weft::Error if WEFT_ISA or WEFT_THREADS asks for something that this machine does not have.
void add_choice(Facts& facts);

}  // namespace weft::tools
