#include "compiler/passes/pipeline.h"

#include "compiler/passes/channels_last.h"
#include "compiler/passes/cse.h"
#include "compiler/passes/dce.h"
#include "compiler/passes/exact_sums.h"
#include "compiler/passes/fusion/fuse.h"
#include "compiler/passes/loops.h"
#include "compiler/passes/lower.h"
#include "compiler/passes/patterns/discover_attention.h"
#include "compiler/passes/patterns/linear_cross_entropy.h"
#include "compiler/passes/patterns/simplify.h"
#include "compiler/passes/rearrange.h"
#include "framework/autodiff/grad.h"

namespace weft {
namespace {

constexpr bool kRequired = true;

// Before expand_grad, run only passes that preserve the order in which gradients are summed. Merging or bypassing
// forward nodes there would change gradient bits compared with eager mode. After it, every pass keeps the bits of every
// value (rearrange: except the sign of zeros).
constexpr Pass kJoint[] = {
    {"dce", dce, "so that unneeded nodes are not differentiated"},
    {"discover_attention", discover_attention,
     "before expand_grad: its gradient is one op too; after dce, which shows who reads the scores"},
    {"linear_cross_entropy", linear_cross_entropy,
     "before expand_grad: its gradient is one op; after dce, which shows who reads the logits"},
    {"expand_grad", expand_grad, "from here on gradients and optimiser are ordinary nodes", kRequired},
    {"parts", parts, "before unroll: parts of a batch become a loop", kRequired},
    {"unroll", unroll, "after expand_grad, which makes the loops of derivatives; before passes that see single nodes",
     kRequired},
    {"dce", dce, "removes unneeded derivatives before other passes read them"},
    {"exact_sums", exact_sums,
     "after expand_grad, so that gradients are there; before cse, which merges equal nodes of decompositions",
     kRequired},
    {"simplify", simplify,
     "derivatives leave zeros, identity views and chains of casts; cse then finds more equal nodes"},
    {"cse", cse, "after simplify, which makes nodes equal; before dce, which drops nodes without uses"},
    {"dce", dce, "drops nodes that simplify and cse bypassed, so that the plan gives them no memory"},
    {"merge_linear_cross_entropy", merge_linear_cross_entropy,
     "after cse, which makes the operands of loss and gradient one value each"},
    {"rearrange", rearrange, "after dce, so that use counts of sums are exact; before copies are planned"},
    {"dce", dce, "drops the pads and zeros that rearrange made needless"},
};

constexpr Pass kRecompute[] = {
    {"recompute", nullptr, "on the final joint graph, so that copies of nodes are not merged again; plans it anew"},
};

constexpr Pass kPlace[] = {
    {"pin", nullptr, "on the joint graph: strategies pin the placements of forward, backward and update at once",
     kRequired},
    {"decide", nullptr, "after pin: every other value gets the placement that moves the fewest bytes", kRequired},
    {"emit", nullptr, "after decide: needs the placement of every value to know where collectives are", kRequired},
};

constexpr Pass kLocal[] = {
    {"dce", dce, "drops values that no rank of this class reads"},
    {"simplify", simplify, "changes of placement leave views and casts next to each other"},
    {"cse", cse, "coordinates and positions are computed once"},
    {"dce", dce, "drops nodes that cse replaced"},
    {"forbid", nullptr, "after dce: refuses forbidden collectives in the graph that runs", kRequired},
};

constexpr Pass kArrange[] = {
    {"async_tp", nullptr, "before bucket: needs each collective beside its product"},
    {"bucket", nullptr, "before overlap, which starts a bucket as one collective"},
    {"overlap", nullptr, "last: needs the final collectives to start them early and wait for them late"},
    {"stages", nullptr, "with pp, in place of the others: cuts the graph of one microbatch, which has its collectives",
     kRequired},
};

constexpr Pass kFused[] = {
    {"lower", internal::lower, "before fuse, which needs ops that have a kernel or are views", kRequired},
    {"channels_last", channels_last,
     "after lower, which makes products of convolutions; before fuse, which sees views"},
    {"fuse", fuse, "after channels_last; before order, which schedules its launches"},
    {"fuse_rows", nullptr, "part of fuse: reductions with the ops around them"},
    {"fuse_epilogue", nullptr, "part of fuse: ops after a product, on its tile"},
    {"fuse_prologue", nullptr, "part of fuse_duplicate: cheap operands of products, computed while they are packed"},
    {"fuse_siblings", nullptr, "part of fuse: groups that read the same values"},
    {"fuse_duplicate", nullptr, "part of fuse: readers recompute cheap values"},
    {"loop_bodies", loop_bodies, "after fuse, which sees a loop as one node; before plan, which plans the bodies too",
     kRequired},
};

constexpr Pass kPlan[] = {
    {"order", nullptr, "after fuse: the launches in two orders, and the one whose plan needs less memory", kRequired},
    {"plan", nullptr, "after order: needs the lifetime of each value to share and reuse buffers", kRequired},
    {"arena", nullptr, "after plan: gives the buffers of the chosen plan their offsets", kRequired},
};

constexpr Pass kCommit[] = {
    {"commit", nullptr, "after the plans of all ranks: all ranks must wait between the same two collectives",
     kRequired},
};

}  // namespace

std::span<const PipelineStage> pipeline() {
  static constexpr PipelineStage kStages[] = {
      {PassStage::kJoint, "joint", "always", "compiler/exec/entry.cc", kJoint},
      {PassStage::kRecompute, "joint", "memory_budget, if the plan exceeds it", "compiler/exec/budget.cc", kRecompute},
      {PassStage::kPlace, "partitioned", "mesh", "distributed/plan/mesh_plan.cc", kPlace},
      {PassStage::kLocal, "partitioned", "mesh", "distributed/plan/mesh_plan.cc", kLocal},
      {PassStage::kArrange, "partitioned", "mesh", "distributed/overlap/arrange.cc", kArrange},
      {PassStage::kFused, "fused", "always", "compiler/exec/entry.cc", kFused},
      {PassStage::kPlan, "scheduled", "always", "compiler/exec/entry.cc", kPlan},
      {PassStage::kCommit, "scheduled", "mesh", "distributed/launch/step.cc", kCommit},
  };
  return kStages;
}

std::span<const Pass> passes_of(PassStage stage) {
  for (const PipelineStage& s : pipeline())
    if (s.stage == stage) return s.passes;
  return {};
}

std::span<const Pass> all_passes() {
  static const std::vector<Pass> all = [] {
    std::vector<Pass> v;
    for (const PipelineStage& s : pipeline()) v.insert(v.end(), s.passes.begin(), s.passes.end());
    return v;
  }();
  return all;
}

}  // namespace weft
