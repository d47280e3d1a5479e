// Measures the shares of a machine's rates that attention and a training step reach.
#pragma once
#include "compiler/cost/machine/machine.h"

namespace weft::tools {

/// The predicted time of a small transformer's step on `machine` over its measured time, at most 1. Plans expect this
/// share in other steps (Machine::reached).
double reached_share(const Machine& machine);
/// The rate of causal attention over 256 tokens, forward and backward, as a share of the rate of large products, by
/// elements of a head from 16 to 128 (Machine::attention_shares).
std::vector<ProductShare> attention_shares(const Machine& machine);

}  // namespace weft::tools
