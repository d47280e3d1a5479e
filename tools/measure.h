// Measures what bounds a training step: how fast memory is copied and matrices are multiplied.
#pragma once
#include "tools/facts.h"

namespace weft::tools {

/// Adds section "measured": copy rate (bytes read plus bytes written) and GEMM rate by dtype, with one thread and with
/// all cores. Takes a few seconds.
void add_measured(Facts& facts);

}  // namespace weft::tools
