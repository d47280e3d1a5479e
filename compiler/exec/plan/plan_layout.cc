// The functions of plans that replays need: offsets in the arena, and the list of operations.
#include <numeric>
#include <unordered_set>

#include "compiler/exec/plan/plan.h"
#include "compiler/exec/run/arena.h"

namespace weft::internal {

// The lifetimes of the arena buffers in use; `which` gets their indices.
static std::vector<Interval> arena_intervals(const MemoryLayout& plan, std::vector<int32_t>& which) {
  std::vector<Interval> intervals;
  for (int32_t b = 0; b < static_cast<int32_t>(plan.buffers.size()); ++b) {
    const MemoryBlock& x = plan.buffers[b];
    if (x.home != Home::kArena || x.bytes == 0 || x.first < 0) continue;
    intervals.push_back({aligned(x.bytes, plan.alignment), x.first, x.last, 0});
    which.push_back(b);
  }
  return intervals;
}

void scan_uses(MemoryLayout& plan) {
  for (MemoryBlock& b : plan.buffers) b.first = b.last = -1;
  for (int32_t t = 0; t < static_cast<int32_t>(plan.launches.size()); ++t) {
    const Launch& l = plan.launches[t];
    auto use = [&](int32_t b) {
      MemoryBlock& x = plan.buffers[b];
      if (x.first < 0) x.first = t;
      x.last = t;
    };
    for (const BufferPlace& p : l.in) use(p.buffer);
    for (const BufferPlace& p : l.out) use(p.buffer);
    if (l.workspace >= 0) use(l.workspace);
  }
}

void lay_out(MemoryLayout& plan) {
  std::vector<int32_t> which;
  std::vector<Interval> intervals = arena_intervals(plan, which);
  plan.arena_bytes = place_intervals(intervals);
  for (size_t i = 0; i < which.size(); ++i) plan.buffers[which[i]].offset = intervals[i].offset;
}

std::vector<std::shared_ptr<Operation>> operations_of(const MemoryLayout& plan) {
  std::vector<std::shared_ptr<Operation>> all;
  std::unordered_set<const Operation*> seen;
  for (const auto* list : {&plan.setup, &plan.launches})
    for (const Launch& l : *list)
      if (seen.insert(l.operation.get()).second) all.push_back(l.operation);
  for (size_t i = 0; i < all.size(); ++i)  // grows: a loop may have a loop inside
    for (const auto& operation : all[i]->operations())
      if (seen.insert(operation.get()).second) all.push_back(operation);
  return all;
}

const char* name_of(const Launch& l) { return l.operation->name() ? l.operation->name() : l.op->name; }

Cost cost_of(const Launch& l, const Graph& g) {
  SmallVec<TensorType, 4> in, out;
  for (const BufferPlace& p : l.in) in.push_back(p.type);
  for (const BufferPlace& p : l.out) out.push_back(p.type);
  return op_cost(*l.op, l.copy ? Attrs() : g.node(l.node).attrs, in, out);
}

int64_t bytes_live(const MemoryLayout& plan) {
  std::vector<int32_t> which;
  return most_live(arena_intervals(plan, which));
}

std::vector<int64_t> live_by_launch(const MemoryLayout& plan) {
  std::vector<int32_t> which;
  std::vector<int64_t> change(plan.launches.size() + 1);
  for (const Interval& i : arena_intervals(plan, which)) {
    change[static_cast<size_t>(i.first)] += i.bytes;
    change[static_cast<size_t>(i.last) + 1] -= i.bytes;
  }
  std::partial_sum(change.begin(), change.end(), change.begin());
  change.pop_back();
  return change;
}

}  // namespace weft::internal
