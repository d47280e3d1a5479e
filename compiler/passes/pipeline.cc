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

// Before expand_grad only what leaves the order in which gradients are summed: merging or shortcutting forward nodes
// there would change the bits of gradients against eager mode. After it every pass keeps the bits of every value
// (rearrange: but for the sign of zeros).
std::span<const Pass> pipeline() {
  static constexpr Pass kPasses[] = {
      {"dce", dce, "what nothing needs is not differentiated"},
      {"discover_attention", discover_attention,
       "before expand_grad: its gradient is one op too; after dce, which shows who reads the scores"},
      {"linear_cross_entropy", linear_cross_entropy,
       "before expand_grad: its gradient is one op; after dce, which shows who reads the logits"},
      {"expand_grad", expand_grad, "from here on gradients and optimiser are ordinary nodes", true},
      {"dce", dce, "derivatives of what needs none go before anything looks at them"},
      {"exact_sums", exact_sums,
       "after expand_grad, so that gradients are there; before cse, which merges what decompositions compute twice",
       true},
      {"simplify", simplify,
       "derivatives leave zeros, identity views and chains of casts; cse then finds more equal nodes"},
      {"cse", cse, "after simplify, which makes nodes equal; before dce, which drops what lost its last use"},
      {"dce", dce, "drops what simplify and cse bypassed, so that the plan gives it no memory"},
      {"merge_linear_cross_entropy", merge_linear_cross_entropy,
       "after cse, which makes the operands of loss and gradient one value each"},
      {"rearrange", rearrange,
       "after dce, so that a sum with one use is seen to have one; before anything plans copies"},
      {"dce", dce, "drops the pads and zeros that rearrange made needless"},
  };
  return kPasses;
}

std::span<const Pass> all_passes() {
  static const std::vector<Pass> all = [] {
    std::vector<Pass> v(pipeline().begin(), pipeline().end());
    v.push_back({"fuse", fuse, "last: it sees what is really computed, and the plan takes its launches as they are"});
    v.insert(v.end(), fusion_parts().begin(), fusion_parts().end());
    return v;
  }();
  return all;
}

}  // namespace weft
