// Looks at the machine: processor, memory, compilers, and the libraries that Weft loads where it finds them.
#pragma once
#include <string>

#include "tools/facts.h"

namespace weft::tools {

/// The instruction sets of Weft's CPU kernels, least to most capable.
enum class Isa { kBaseline, kAvx2, kAvx512 };

/// The most capable set this processor and system support.
Isa best_isa();

/// Processors this process may run on, within its container's limit.
int usable_cores();

/// Bytes of memory, within the container's limit.
double usable_memory();

/// Adds sections "cpu", "memory", "system".
void add_machine(Facts& facts);

/// Adds section "weft": the instruction set that `wanted` (the value of WEFT_ISA; empty or "auto" for the best)
/// selects. Throws std::invalid_argument where it names no set, or one that this processor lacks.
void add_choice(Facts& facts, const std::string& wanted);

/// Adds section "libraries": oneDNN, and CUDA's libraries with their versions or the reason they cannot be used.
void add_libraries(Facts& facts);

}  // namespace weft::tools
