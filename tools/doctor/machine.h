// Finds the machine's processor, memory and compilers.
#pragma once
#include "tools/doctor/facts.h"

namespace weft::tools {

/// The processors that this process may use, within its container's limit.
int usable_cores();

/// The current clock of the fastest processor in cycles per second, as Linux reports it; 0 if Linux reports none.
double clock_hz();

/// Bytes of memory that this process may use, within the limits of its container and of `ulimit -v`.
double usable_memory();

/// Adds sections "cpu", "memory", "system".
void add_machine(FactList& facts);

/// Adds section "weft": the instruction set, features and threads that Weft uses, the compiler of kernels, and the
/// folder of their cache. Throws weft::Error if WEFT_ISA or WEFT_THREADS requests more than the machine has.
void add_choice(FactList& facts);

}  // namespace weft::tools
