// Measures the shares of a machine's rates that attention and a training step reach.
#pragma once
#include "compiler/cost/machine.h"

namespace weft::tools {

/// The time that plans predict for a step of a small transformer on `machine` over the time that it takes, at most 1:
/// plans expect it of other steps (Machine::reached).
double reached_share(const Machine& machine);
/// What forward and backward of causal attention over 256 tokens reach of the rate of large products, by elements of a
/// head from 16 to 128 (Machine::attention_shares).
std::vector<ProductShare> attention_shares(const Machine& machine);

}  // namespace weft::tools
