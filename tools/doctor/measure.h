// Measures the rates of the machine's processor and GPUs.
#pragma once
#include "compiler/cost/machine/machine.h"
#include "tools/doctor/facts.h"

namespace weft::tools {

/// Adds section "measured" with the rates of one thread and of all cores: memory by working set, products by size and
/// dtype beside the limit of the processor's current clock, the share of these rates in small linear layers, and the
/// overhead of a parallel loop. Returns the rates of all cores, with the processor's name and its memory.
Machine add_cpu_rates(FactList& facts);

/// Adds each GPU's copy rates to section "measured": to the host and back with pinned and with pageable memory, on the
/// device beside the limit of its memory's clock, and to each other GPU. Adds nothing without a GPU.
void add_gpu_rates(FactList& facts);

}  // namespace weft::tools
