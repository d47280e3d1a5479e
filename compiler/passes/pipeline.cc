#include "compiler/passes/pipeline.h"

#include "compiler/passes/cse.h"
#include "compiler/passes/dce.h"
#include "compiler/passes/discover_attention.h"
#include "compiler/passes/exact_sums.h"
#include "compiler/passes/fuse.h"
#include "compiler/passes/linear_cross_entropy.h"
#include "compiler/passes/rearrange.h"
#include "compiler/passes/simplify.h"
#include "framework/autodiff/grad.h"

namespace weft {

// Before expand_grad, run only passes that preserve the order in which gradients are summed. Merging or bypassing
// forward nodes there would change gradient bits compared with eager mode. After it, every pass keeps the bits of every
// value (rearrange: except the sign of zeros).
std::span<const Pass> pipeline() {
  static constexpr Pass kPasses[] = {
      {"dce", dce, "so that unneeded nodes are not differentiated"},
      {"discover_attention", discover_attention,
       "before expand_grad: its gradient is one op too; after dce, which shows who reads the scores"},
      {"linear_cross_entropy", linear_cross_entropy,
       "before expand_grad: its gradient is one op; after dce, which shows who reads the logits"},
      {"expand_grad", expand_grad, "from here on gradients and optimiser are ordinary nodes", true},
      {"dce", dce, "removes unneeded derivatives before other passes read them"},
      {"exact_sums", exact_sums,
       "after expand_grad, so that gradients are there; before cse, which merges what decompositions compute twice",
       true},
      {"simplify", simplify,
       "derivatives leave zeros, identity views and chains of casts; cse then finds more equal nodes"},
      {"cse", cse, "after simplify, which makes nodes equal; before dce, which drops what lost its last use"},
      {"dce", dce, "drops what simplify and cse bypassed, so that the plan gives it no memory"},
      {"merge_linear_cross_entropy", merge_linear_cross_entropy,
       "after cse, which makes the operands of loss and gradient one value each"},
      {"rearrange", rearrange, "after dce, so that use counts of sums are exact; before copies are planned"},
      {"dce", dce, "drops the pads and zeros that rearrange made needless"},
  };
  return kPasses;
}

std::span<const Pass> all_passes() {
  static const std::vector<Pass> all = [] {
    std::vector<Pass> v(pipeline().begin(), pipeline().end());
    v.push_back({"fuse", fuse, "last: only live nodes remain, and the plan uses its launches unchanged"});
    v.insert(v.end(), fusion_parts().begin(), fusion_parts().end());
    return v;
  }();
  return all;
}

}  // namespace weft
