#include "compiler/cost/keep_cost.h"

#include <algorithm>

#include "compiler/cost/roofline.h"
#include "framework/ir/op_def.h"
#include "ops/core/reductions/reduce.h"

namespace weft {
namespace {

// The op can run inside a kernel that reads its result.
bool fusible(const OpDef& op) {
  return op.is(kPointwise) || op.is(kView) || op.is(kReduction) || op.is(kRandom) || op.is(kAssembles) ||
         op.is(kFromAttrs);
}

// A reduction whose result can be used while the reduced rows are at hand.
bool of_rows(const Node& n) {
  if (!n.op->is(kReduction)) return false;
  if (!n.attrs.has("dims")) return false;
  const Shape& dims = n.attrs.ints("dims");
  const int64_t out_rank = static_cast<int64_t>(n.outputs[0].shape.size());
  if (out_rank == 0) return false;
  for (size_t i = 0; i < dims.size(); ++i)
    if (dims[i] != out_rank + static_cast<int64_t>(i)) return false;
  return true;
}

Redo redo_of(const Node& n) {
  const OpDef& op = *n.op;
  if (op.is(kSideEffect) || op.is(kStructural) || n.outputs.empty()) return Redo::kNever;
  if (op.is(kRandom)) return Redo::kExpensive;
  if (n.inputs.empty()) return Redo::kFree;
  if (op.is(kCollective)) return Redo::kNever;
  if (op.is(kPointwise) || op.is(kView) || op.is(kAssembles)) return Redo::kCheap;
  if (op.is(kReduction)) return Redo::kReduce;
  return op.kernel ? Redo::kExpensive : Redo::kNever;
}

DeviceType planned_device(const Graph& g) {
  for (int32_t id = 0; id < g.size(); ++id)
    for (const TensorType& t : g.node(id).outputs)
      if (t.device.type == DeviceType::kCuda) return t.device.type;
  return DeviceType::kCpu;
}

int64_t cost_again(const Graph& g, const Node& n, Redo redo, const Machine& m) {
  Cost w = op_cost(g, n);
  // Its operands and result move only where a kernel of its own reads them from memory.
  if (redo == Redo::kReduce)
    w.bytes = static_cast<double>(g.type(n.inputs[0]).nbytes()) / 4;  // a pass over rows in cache
  else if (redo == Redo::kCheap || n.op->is(kContraction))
    w.bytes = 0;
  const double seconds = redo == Redo::kCheap ? roofline_seconds(m, w) : launch_seconds(m, w);
  return static_cast<int64_t>(seconds * m.bytes * m.reached * kCostPerByte);
}

}  // namespace

bool KeepCosts::reads_memory(const OpDef& op) { return !fusible(op) && !op.is(kStructural); }

KeepCosts::KeepCosts(const Graph& g, int64_t small)
    : small_(small), machine_(planned_machine(planned_device(g))), nodes_(g.size()), first_(g.size()) {
  for (int32_t id = 0; id < g.size(); ++id) {
    first_[id] = static_cast<int32_t>(values_.size());
    values_.resize(values_.size() + g.node(id).outputs.size());
    any_backward_ |= g.node(id).backward;
  }
  classify(g);
  find_stored(g);
  price(g);
}

// Sets the part a node belongs to, the memory it shows and when it can run.
void KeepCosts::classify(const Graph& g) {
  std::vector<Shape> strides(g.size());  // strides of aliases
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    NodeCost& c = nodes_[id];
    c.backward = n.backward;
    int64_t bytes = 0;
    for (int32_t k = 0; k < static_cast<int32_t>(n.outputs.size()); ++k) {
      at({id, k}).base = {id, k};
      bytes += n.outputs[k].nbytes();
    }
    c.always = bytes <= small_ && !n.op->is(kRandom) && !n.op->is(kSideEffect) && !is_argument(n) && !is_cell(n);
    for (Value v : n.inputs) {
      const NodeCost& from = nodes_[v.node];
      c.backward |= from.backward;
      c.always &= from.always;
      c.level = std::max(c.level, from.level);
    }
    c.redo = redo_of(n);
    if (n.op->view && !n.inputs.empty()) {
      const Value v = n.inputs[0];
      const TensorType& t = g.type(v);
      int64_t offset = 0;
      const StridedView in{nullptr, t.dtype, t.shape,
                           nodes_[v.node].alias ? strides[v.node] : contiguous_strides(t.shape)};
      if (n.op->view(n.attrs, in, n.outputs[0], &strides[id], &offset)) {
        c.alias = true;
        at({id, 0}).base = at(v).base;
        if (c.redo == Redo::kCheap) c.redo = Redo::kFree;
      }
    }
    if (!c.alias && bytes <= small_ && c.redo != Redo::kFree) c.redo = Redo::kNever;
    const bool complete = reads_memory(*n.op) || (n.op->is(kReduction) && !of_rows(n));
    if (complete) ++c.level;
  }
}

// Finds the values that some op needs in memory, in the forward and in the backward part.
void KeepCosts::find_stored(const Graph& g) {
  auto result = [&](Value v) { at(at(v).base).stored = true; };
  for (Value v : g.outputs) result(v);
  for (const CellWrite& w : g.writes) result(w.value);
  // Values through which a contraction's result reaches a reduction of its rows: no epilogue can fuse it then.
  std::vector<bool> reduced(values_.size());
  for (int32_t id = g.size() - 1; id >= 0; --id) {
    const Node& n = g.node(id);
    const NodeCost& c = nodes_[id];
    for (int32_t k = 0; k < static_cast<int32_t>(n.outputs.size()); ++k) {
      ValueCost& v = at({id, k});
      if (c.alias) continue;
      if (n.inputs.empty() && n.op->is(kStructural)) v.stored = true;
      if (reads_memory(*n.op) && (!n.op->is(kContraction) || reduced[first_[id] + k])) v.stored = true;
    }
    if (c.alias) continue;  // its users count for its base
    const bool complete = reads_memory(*n.op) || (n.op->is(kReduction) && !of_rows(n));
    const int32_t level = c.level - complete;
    for (Value in : n.inputs) {
      const Value base = at(in).base;
      ValueCost& v = at(base);
      if (c.backward && !nodes_[base.node].backward) {
        v.stored_after |= reads_memory(*n.op);
        continue;
      }
      v.stored |= reads_memory(*n.op) || level > nodes_[base.node].level;
      if (n.op->is(kReduction)) reduced[first_[base.node] + base.index] = true;
      if (!reads_memory(*n.op) && !n.op->is(kReduction) && !at({id, 0}).stored && reduced[first_[id]])
        reduced[first_[base.node] + base.index] = true;
    }
  }
}

void KeepCosts::price(const Graph& g) {
  // The number of kernels that would recompute a value: levels of the backward nodes that read it.
  std::vector<std::pair<int32_t, int32_t>> levels;
  for (int32_t id = 0; id < g.size(); ++id) {
    if (!nodes_[id].backward || nodes_[id].alias) continue;
    for (Value in : g.node(id).inputs) {
      const Value base = at(in).base;
      if (!nodes_[base.node].backward) levels.push_back({base.node, nodes_[id].level});
    }
  }
  std::sort(levels.begin(), levels.end());
  levels.erase(std::unique(levels.begin(), levels.end()), levels.end());
  std::vector<int32_t> times(g.size(), 0);
  for (const auto& [node, level] : levels) ++times[node];

  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    NodeCost& c = nodes_[id];
    if (c.backward || c.always) continue;
    if (c.redo != Redo::kFree && c.redo != Redo::kNever) {
      c.again = cost_again(g, n, c.redo, machine_);
      if (c.redo == Redo::kCheap) c.again *= std::max(1, times[id]);
    }
    const bool arena = !(n.inputs.empty() && n.op->is(kStructural));
    for (int32_t k = 0; k < static_cast<int32_t>(n.outputs.size()); ++k) {
      ValueCost& v = at({id, k});
      const int64_t b = g.type(v.base).nbytes();
      if (c.alias) {
        v.bytes = at(v.base).bytes;
        v.keep = at(v.base).keep;
        v.stored = at(v.base).stored;
        continue;
      }
      v.bytes = arena ? b : 0;
      v.keep = kCostPerByte * (v.stored ? b : 2 * b);
      if (v.stored_after && c.redo != Redo::kNever) c.again += kCostPerByte * 2 * b;
    }
  }
  // Results of the step are live at its end in any case.
  for (Value v : g.outputs) at(at(v).base).bytes = 0;
  for (const CellWrite& w : g.writes) at(at(w.value).base).bytes = 0;
}

}  // namespace weft
