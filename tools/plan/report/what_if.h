// The effects of changes of hardware or workload: lists of changes, and the workloads that they make.
#pragma once
#include <span>

#include "tools/plan/step_cost.h"

namespace weft::planner {

/// The values of one name in "network=0.1x,0.5x,gpus=2x".
struct ChangeList {
  std::string name;
  std::vector<std::string> values;
};
/// Reads such a text. Throws InvalidArgument "what_if: got 'PART'; NEED" for a name outside `names` and for an empty
/// value; for a repeated name, the error contains the second part.
std::vector<ChangeList> change_lists(std::string_view text, std::span<const std::string_view> names,
                                     std::string_view need);

/// A workload after a change.
struct WhatIf {
  std::string change;  // "gpus=2x,network=0.1x"; the first change is "as it is"
  Workload workload;
};
/// The unchanged workload, workloads with each value of
/// "gpu_flops=8x,network=0.1x,0.5x,gpus=2x,batch=1000,seq=8192,memory=2x" alone, and, if there are several names, all
/// combinations with a value of each name. Values are numbers, or factors with x. network: links between nodes and
/// within them; bandwidth: of the GPU's memory. A change of seq keeps the tokens of a step, unless batch is changed
/// too; the order of the names does not matter. If `fit_batch` is set, other gpus or sequences get a suitable batch
/// near the old batch (batch_for), unless batch is changed too. Throws InvalidArgument, naming the part, for other
/// text, and for more than 64 workloads.
std::vector<WhatIf> what_if(const Workload& setup, const std::string& text, bool fit_batch = false);

}  // namespace weft::planner
