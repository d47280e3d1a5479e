// What changes when the hardware or the workload does: lists of changes, and the workloads that they make.
#pragma once
#include <span>

#include "tools/plan/step_cost.h"

namespace weft::planner {

/// The values of one name in "network=0.1x,0.5x,gpus=2x".
struct ChangeList {
  std::string name;
  std::vector<std::string> values;
};
/// Reads such a text. Throws InvalidArgument "what_if: got 'PART'; NEED" for a name that is not one of `names` and for
/// an empty value, and names the part that comes twice.
std::vector<ChangeList> change_lists(std::string_view text, std::span<const std::string_view> names,
                                     std::string_view need);

/// A workload after a change.
struct WhatIf {
  std::string change;  // "gpus=2x,network=0.1x"; of the first one "as it is"
  Workload workload;
};
/// The workload as it is, with each value of "gpu_flops=8x,network=0.1x,0.5x,gpus=2x,batch=1000,seq=8192,memory=2x"
/// alone, and, if there are several names, with a value of each: all combinations. Values are numbers, or factors with
/// x. network: links between nodes and within them; bandwidth: of the GPU's memory. A change of seq keeps the tokens of
/// a step, unless batch is changed too; the order of the names does not matter. With `fit_batch`, other gpus or
/// sequences get a batch near the old one that suits them (batch_for), unless batch is changed too. Throws
/// InvalidArgument, naming the part, for other text, and for more than 64 workloads.
std::vector<WhatIf> what_if(const Workload& setup, const std::string& text, bool fit_batch = false);

}  // namespace weft::planner
