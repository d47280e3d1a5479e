// What replays need of plans: offsets in the arena, and the op that moves values.
#include <algorithm>

#include "compiler/exec/arena.h"
#include "compiler/exec/plan.h"
#include "ops/kernels/kernels.h"

namespace weft::internal {
namespace {

// The arena buffers in use, and which they are.
std::vector<Interval> arena_intervals(const Plan& plan, std::vector<int32_t>& which) {
  std::vector<Interval> intervals;
  for (int32_t b = 0; b < static_cast<int32_t>(plan.buffers.size()); ++b) {
    const PlanBuffer& x = plan.buffers[b];
    if (x.home != Home::kArena || x.bytes == 0 || x.first < 0) continue;
    intervals.push_back({aligned(x.bytes, plan.alignment), x.first, x.last, 0});
    which.push_back(b);
  }
  return intervals;
}

DimMap copy_dims(const Attrs&, std::span<const TensorType> in, std::span<const TensorType> out) {
  return DimMap::pointwise(in, out);
}
Types copy_infer(const InferCall& c) { return {c.in[0]}; }
void copy_kernel(const KernelCall& c) { kernels::cast_copy(c.in[0], c.out[0]); }

}  // namespace

const OpDef copy_op = {.name = "copy",
                       .doc = "The operand's elements in other memory.",
                       .flops_per_point = 0,
                       .infer = copy_infer,
                       .dims = copy_dims,
                       .kernel = copy_kernel};

void lay_out(Plan& plan) {
  std::vector<int32_t> which;
  std::vector<Interval> intervals = arena_intervals(plan, which);
  plan.arena_bytes = place_intervals(intervals);
  for (size_t i = 0; i < which.size(); ++i) plan.buffers[which[i]].offset = intervals[i].offset;
}

std::vector<const FusedKernel*> kernels_of(const Plan& plan) {
  std::vector<const FusedKernel*> all;
  for (const auto* list : {&plan.setup, &plan.launches})
    for (const Launch& l : *list) {
      if (!l.fused || std::find(all.begin(), all.end(), l.fused.get()) != all.end()) continue;
      for (const auto& part : l.fused->parts().kernel)
        if (part) all.push_back(part.get());
      all.push_back(l.fused.get());
    }
  return all;
}

int64_t bytes_live(const Plan& plan) {
  std::vector<int32_t> which;
  return most_live(arena_intervals(plan, which));
}

}  // namespace weft::internal
