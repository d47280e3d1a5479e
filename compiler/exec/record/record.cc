#include "compiler/exec/record/record.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "compiler/cost/machine/rates.h"
#include "compiler/cost/roofline.h"
#include "compiler/exec/entry.h"
#include "compiler/loop_ir/fused.h"
#include "compiler/passes/fusion/fuse_report.h"
#include "framework/base/units.h"
#include "framework/ir/rewrite.h"
#include "framework/ir/text.h"
#include "ops/core/core.h"

namespace weft {

std::string op_at_line(const Node& n) {
  return n.line.line ? str_cat(n.op->name, " at ", internal::base_name(n.line.file), ":", n.line.line)
                     : std::string(n.op->name);
}

const char* to_string(WorkClass kind) {
  constexpr const char* kNames[] = {"contraction", "normalisation", "elementwise", "movement", "collective"};
  return kNames[static_cast<int>(kind)];
}
const char* to_string(Bound bound) {
  constexpr const char* kNames[] = {"memory", "arithmetic", "products"};
  return kNames[static_cast<int>(bound)];
}

const char* to_string(MissedRecord::MissedKind kind) {
  constexpr const char* kNames[] = {"copy", "separate kernels"};
  return kNames[static_cast<int>(kind)];
}

std::string MissedRecord::to_string() const {
  return str_cat(bytes_text(bytes), "  ", from, kind == kCopy ? " is copied" : str_cat(" | ", to), ": ", reason,
                 times > 1 ? str_cat(", ", times, " times") : std::string());
}

// Calls fn for the ops of a node: the ops in the body of a fused node or a loop, else its own op.
template <class F>
static void each_op(const Node& n, const F& fn) {
  if (!n.op->is(kRunsBody)) return fn(n);
  const Graph& body = loop_ir::body_of(n);
  for (int32_t id = 0; id < body.size(); ++id)
    if (!is_argument(body.node(id))) each_op(body.node(id), fn);
}

WorkClass class_of(const Node& n) {
  bool contracts = false, reduces = false, computes = false, communicates = false;
  each_op(n, [&](const Node& o) {
    communicates |= o.op->is(kCollective);
    contracts |= o.op->is(kContraction);
    reduces |= o.op->is(kReduction);
    computes |= o.op != &cast_op && !o.op->is(kView) && !o.op->is(kIndexing) && o.op != &loop_ir::copy_op;
  });
  return communicates ? WorkClass::kCollective
         : contracts  ? WorkClass::kContraction
         : reduces    ? WorkClass::kNormalisation
         : computes   ? WorkClass::kElementwise
                      : WorkClass::kMovement;
}

namespace {

struct NodePhases {
  std::vector<Phase> nodes;
  std::vector<std::vector<Phase>> results;  // phases of each node's results
};

// `inputs`: the phases of the graph's inputs; empty: forward.
NodePhases phases_in(const Graph& g, std::span<const Phase> inputs) {
  const auto size = static_cast<size_t>(g.size());
  NodePhases p{std::vector<Phase>(size, Phase::kForward), std::vector<std::vector<Phase>>(size)};
  for (size_t i = 0; i < inputs.size(); ++i) p.nodes[static_cast<size_t>(g.inputs[i].node)] = inputs[i];
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    Phase& phase = p.nodes[static_cast<size_t>(id)];
    std::vector<Phase>& results = p.results[static_cast<size_t>(id)];
    std::vector<Phase> operands;
    for (Value v : n.inputs) operands.push_back(p.results[static_cast<size_t>(v.node)][static_cast<size_t>(v.index)]);
    if (n.op->is(kGroup)) {
      // The phase of all its results, else of most of its operations.
      const Graph& body = loop_ir::body_of(n);
      const NodePhases inside = phases_in(body, operands);
      double work[3] = {};
      for (int32_t k = 0; k < body.size(); ++k)
        if (!is_argument(body.node(k)))
          work[static_cast<int>(inside.nodes[static_cast<size_t>(k)])] += 1 + op_cost(body, body.node(k)).flops;
      phase = static_cast<Phase>(std::max_element(work, work + 3) - work);
      for (Value v : body.outputs)
        results.push_back(inside.results[static_cast<size_t>(v.node)][static_cast<size_t>(v.index)]);
      // A kernel that computes forward values again for a gradient has the phase of its results.
      if (std::all_of(results.begin(), results.end(), [&](Phase r) { return r == results[0]; })) phase = results[0];
      continue;
    }
    const bool reads = std::any_of(operands.begin(), operands.end(), [](Phase o) { return o != Phase::kForward; });
    if (n.backward || n.recomputed || n.op->is(kReadsTape)) {
      phase = Phase::kBackward;
    } else if (reads) {
      phase = Phase::kUpdate;
    }
    results.assign(std::max<size_t>(n.outputs.size(), 1), phase);
  }
  return p;
}

}  // namespace

std::vector<Phase> phases_of(const Graph& g) {
  std::vector<Phase> phases = phases_in(g, {}).nodes;
  std::vector<bool> result(phases.size());
  for (Value v : g.outputs) result[static_cast<size_t>(v.node)] = true;
  const std::vector<std::vector<int32_t>> readers = users(g);
  for (size_t id = phases.size(); id-- > 0;)
    if (phases[id] == Phase::kForward && !result[id] && !readers[id].empty() &&
        std::all_of(readers[id].begin(), readers[id].end(),
                    [&](int32_t r) { return phases[static_cast<size_t>(r)] == Phase::kUpdate; }))
      phases[id] = Phase::kUpdate;
  return phases;
}

StepRecord::WorkSum& StepRecord::WorkSum::operator+=(const LaunchRecord& l) {
  work += l.known();
  predicted_us += l.predicted_us;
  measured_us += l.measured_us;
  ++launches;
  return *this;
}

void StepRecord::predict(const Machine& rates) {
  machine = rates;
  for (LaunchRecord& l : launches) {
    if (!l.axes.empty()) continue;  // a collective's links are the mesh's
    const ResourceSeconds s = resource_seconds(machine, l.known());
    l.predicted_us = 1e6 * std::max({s.memory, s.arithmetic, s.products});
    l.bound = s.products > 0 && s.products >= std::max(s.memory, s.arithmetic) ? Bound::kProducts
              : s.arithmetic > s.memory                                        ? Bound::kArithmetic
                                                                               : Bound::kMemory;
  }
}

StepRecord::WorkSum StepRecord::sum() const {
  WorkSum s;
  for (const LaunchRecord& l : launches) s += l;
  return s;
}
StepRecord::WorkSum StepRecord::sum(WorkClass kind) const {
  WorkSum s;
  for (const LaunchRecord& l : launches)
    if (l.kind == kind) s += l;
  return s;
}
StepRecord::WorkSum StepRecord::sum(Phase phase) const {
  WorkSum s;
  for (const LaunchRecord& l : launches)
    if (l.phase == phase) s += l;
  return s;
}

namespace internal {

const char* home_name(Home home) {
  constexpr const char* kNames[kHomes] = {"arena", "constants", "argument", "cell", "cell", "output", "captured"};
  return kNames[static_cast<int>(home)];
}

namespace {

std::string place_of(const LaunchRecord& l) {
  return str_cat(l.name, l.line.line ? str_cat(" at ", l.line.to_string()) : std::string(),
                 l.scope.empty() ? std::string() : str_cat(" in ", l.scope));
}

// Bytes of results in the memory of an operand. A cell's new value counts, as if no other handle held the old value.
double bytes_in_place(const MemoryLayout& plan, const Launch& l) {
  const auto same = [&](const BufferPlace& a, const BufferPlace& b) {
    const MemoryBlock &from = plan.buffers[static_cast<size_t>(a.buffer)],
                      &to = plan.buffers[static_cast<size_t>(b.buffer)];
    return a.buffer == b.buffer || (from.home == Home::kCell && to.home == Home::kCellNew && from.index == to.index);
  };
  double bytes = 0;
  for (const BufferPlace& o : l.out)
    if (std::any_of(l.in.begin(), l.in.end(), [&](const BufferPlace& i) { return same(i, o); }))
      bytes += static_cast<double>(o.type.nbytes());
  return bytes;
}

void add_launches(const MemoryLayout& plan, const Executable* executable, StepRecord& r) {
  const Graph& g = *plan.graph;
  const std::vector<Phase> phases = phases_of(g);
  std::map<const Operation*, int32_t> kernels;
  for (size_t t = 0; t < plan.launches.size(); ++t) {
    const Launch& l = plan.launches[t];
    const Node& n = g.node(l.node);
    LaunchRecord one;
    one.name = name_of(l);
    one.scope = n.scope;
    one.line = n.line;
    one.phase = phases[static_cast<size_t>(l.node)];
    one.kind = l.copy ? WorkClass::kMovement : class_of(n);
    one.work = cost_of(l, g);
    if (const Cost* done = executable ? executable->done(t) : nullptr) one.done = *done, one.counted = true;
    const double twice = bytes_in_place(plan, l);
    for (Cost* c : {&one.work, &one.done})
      if (c->working_set > twice) c->working_set -= twice;  // else it does not count all operands and results
    if (executable) one.measured_us = executable->launch_us(t);
    one.fused = l.op->is(kGroup);
    one.copy = l.copy;
    one.node = l.node;
    if (one.fused) {
      one.ops = loop_ir::ops_text(loop_ir::body_of(n), 6);
      const auto [at, fresh] = kernels.try_emplace(l.operation.get(), static_cast<int32_t>(kernels.size()));
      if (fresh) r.kernels.push_back(l.operation->text());
      one.kernel = at->second;
    }
    for (const BufferPlace& o : l.out) one.results.push_back(o.type);
    for (const BufferPlace& a : l.in)
      for (const BufferPlace& b : l.out) one.in_place |= a.buffer == b.buffer;
    r.launches.push_back(std::move(one));
  }
}

void add_buffers(const MemoryLayout& plan, StepRecord& r) {
  for (const MemoryBlock& b : plan.buffers) {
    BufferRecord one{.home = home_name(b.home),
                     .index = b.index,
                     .owner = {},
                     .bytes = accounted(b.bytes),
                     .offset = b.offset,
                     .first = b.first,
                     .last = b.last};
    if (b.home == Home::kCell || b.home == Home::kCellNew) {
      const std::string& name = plan.graph->cells[static_cast<size_t>(b.index)]->name;
      one.owner = name.empty() ? str_cat("cell ", b.index) : name;
    } else if (b.home == Home::kArgument || b.home == Home::kCaptured) {
      one.owner = str_cat(home_name(b.home), " ", b.index);
    } else if (b.first >= 0) {
      one.owner = place_of(r.launches[static_cast<size_t>(b.first)]);
    }
    r.buffers.push_back(std::move(one));
  }
  const std::vector<int64_t> live = live_by_launch(plan);
  const auto most = std::max_element(live.begin(), live.end());
  if (most != live.end() && *most > 0) r.peak_launch = static_cast<int32_t>(most - live.begin());
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const MemoryBlock& b = plan.buffers[i];
    if (b.home == Home::kArena && b.bytes > 0 && b.first >= 0 && b.first <= r.peak_launch && r.peak_launch <= b.last)
      r.at_peak.push_back(static_cast<int32_t>(i));
  }
  std::stable_sort(r.at_peak.begin(), r.at_peak.end(), [&](int32_t a, int32_t b) {
    return plan.buffers[static_cast<size_t>(a)].bytes > plan.buffers[static_cast<size_t>(b)].bytes;
  });
}

std::string cell_name(const Graph& g, int32_t c) {
  const std::string& name = g.cells[static_cast<size_t>(c)]->name;
  return name.empty() ? str_cat("cell ", c) : str_cat("cell '", name, "'");
}

// Copies of values to the places where the step must leave them.
void add_copies(const MemoryLayout& plan, StepRecord& r) {
  const Graph& g = *plan.graph;
  for (const Launch& l : plan.launches) {
    if (!l.copy) continue;
    const MemoryBlock &from = plan.buffers[static_cast<size_t>(l.in[0].buffer)],
                      &to = plan.buffers[static_cast<size_t>(l.out[0].buffer)];
    const bool of_cell = from.home == Home::kCell || from.home == Home::kCellNew;
    MissedRecord m{.bytes = 2 * static_cast<double>(l.out[0].type.nbytes())};
    if (to.home == Home::kCellNew) {
      m.from = str_cat("the new value of ", cell_name(g, to.index));
      m.reason = from.home == Home::kArena
                     ? "its old value is read after the new one exists, or another cell holds the value too"
                 : from.home == Home::kOutput ? "its value is also a result"
                                              : "its value is not computed by this step";
    } else if (to.home == Home::kOutput) {
      m.from =
          str_cat("a result",
                  g.node(l.node).line.line ? str_cat(", ", g.node(l.node).op->name, " at ", g.node(l.node).line) : "");
      m.reason = str_cat("it is a view of ", of_cell                        ? cell_name(g, from.index)
                                             : from.home == Home::kArgument ? str_cat("part of argument ", from.index)
                                                                            : std::string("part of a larger value"));
    } else if (of_cell) {
      m.from = str_cat("the old value of ", cell_name(g, from.index));
      m.reason = "another cell takes it";
    } else {
      m.from = "a value of one part of the step";
      m.reason = "it has a separate buffer, which other parts read or add to";
    }
    r.missed.push_back(std::move(m));
  }
}

// Pairs of launches that would have moved fewer bytes as one.
void add_separate(const FusionReport& report, StepRecord& r) {
  for (const FusionReport::Refused& x : report.separate)
    r.missed.push_back({MissedRecord::kSeparateKernels, op_at_line(report.before->node(x.from)),
                        op_at_line(report.before->node(x.to)), x.reason, x.bytes});
}

// Merges equal records, and returns the records that cost most.
std::vector<MissedRecord> most_of(const std::vector<MissedRecord>& all) {
  constexpr size_t kMost = 100;
  std::vector<MissedRecord> sums;
  std::map<std::tuple<MissedRecord::MissedKind, std::string, std::string, std::string>, size_t> numbers;
  for (const MissedRecord& m : all) {
    const auto [at, fresh] = numbers.try_emplace({m.kind, m.from, m.to, m.reason}, sums.size());
    if (fresh) {
      sums.push_back(m);
    } else {
      sums[at->second].bytes += m.bytes;
      ++sums[at->second].times;
    }
  }
  std::stable_sort(sums.begin(), sums.end(),
                   [](const MissedRecord& a, const MissedRecord& b) { return a.bytes > b.bytes; });
  sums.resize(std::min(sums.size(), kMost));
  return sums;
}

}  // namespace

std::vector<PassRecord> passes_of(std::span<const PassReport> reports) {
  std::vector<PassRecord> all;
  for (const PassReport& p : reports) all.push_back({p.name, p.ms, p.nodes_before, p.nodes_after, p.disabled});
  return all;
}

StepRecord record_of(const PreparedGraph& p, const Executable* executable) {
  StepRecord r;
  r.device = str_cat(p.plan.device);
  r.passes = passes_of(p.passes_to_plan);
  add_launches(p.plan, executable, r);
  r.predict(rates_of(p.plan.device));
  add_copies(p.plan, r);
  if (p.report && p.report->before) add_separate(*p.report, r);
  r.missed = most_of(r.missed);
  add_buffers(p.plan, r);
  r.peak_bytes = p.plan.peak_bytes();
  if (executable) r.measured_peak_bytes = executable->last().measured_peak_bytes;
  return r;
}

}  // namespace internal
}  // namespace weft
