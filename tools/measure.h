// Measures what the machine's processor and GPUs do in a second.
#pragma once
#include "compiler/cost/machine.h"
#include "tools/facts.h"

namespace weft::tools {

/// Adds section "measured" with the rates of one thread and of all cores: memory by working set, products by size and
/// dtype beside what the processor's clock of the moment allows, what small linear layers reach of these, and what a
/// parallel loop adds. Returns the rates of
/// all cores, with the name of the processor and its memory.
Machine add_cpu_rates(Facts& facts);

/// Adds to section "measured" what each GPU copies: to the host and back, by pinned and by pageable memory, on the
/// device beside what its memory's clock allows, and to each other GPU. Nothing without a GPU.
void add_gpu_rates(Facts& facts);

}  // namespace weft::tools
