#include "compiler/passes/fusion/fuse.h"

#include <algorithm>
#include <unordered_map>

#include "compiler/loop_ir/lower_group.h"
#include "compiler/passes/fusion/fuse_build.h"
#include "compiler/passes/fusion/fuse_epilogue.h"
#include "compiler/passes/fusion/fuse_report.h"
#include "compiler/passes/fusion/fuse_separate.h"
#include "framework/ir/op_def.h"

namespace weft {
namespace {

using namespace fusion;

constexpr int kMaxRounds = 40;

/// The bodies of all groups. A group that cannot be lowered is split until all groups can.
std::vector<GroupBody> lowerable_bodies(Partition& p) {
  std::unordered_map<uint64_t, std::string> known;
  std::vector<GroupBody> bodies;
  for (int round = 0;; ++round) {
    WEFT_BUG_IF(round > kMaxRounds + p.graph().size(), "fuse: splitting groups does not terminate");
    const Flow flow(p);
    bodies.clear();
    bodies.resize(p.size());
    bool changed = false;
    for (int32_t i = 0; i < static_cast<int32_t>(bodies.size()); ++i) {
      if (p.group(i).gone) continue;
      bodies[i] = make_body(p, flow, i);
      if (!bodies[i].graph) continue;
      auto [it, fresh] = known.try_emplace(structural_hash(*bodies[i].graph));
      if (fresh) it->second = loop_ir::cannot_lower(*bodies[i].graph);
      if (it->second.empty()) continue;
      changed = true;
      Group& x = p.group(i);
      if (!x.clones.empty()) {
        x.clones.clear();
        continue;
      }
      if (x.left >= 0) p.refuse(x.left, x.right, it->second, 0);
      p.split(i);
    }
    if (!changed) return bodies;
  }
}

FusionReport make_report(const Partition& p, const std::vector<GroupBody>& bodies, const std::vector<int32_t>& made) {
  const FusionGraph& g = p.graph();
  const Graph& old = g.graph();
  FusionReport r;
  r.before = make_ref<Graph>(old);
  auto bytes_of = [&](std::vector<Value> values) {
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    double bytes = 0;
    for (Value v : values) bytes += static_cast<double>(g.bytes(v));
    return bytes;
  };
  auto results = [&](int32_t id, std::vector<Value>& values) {
    for (int32_t k = 0; k < static_cast<int32_t>(old.node(id).outputs.size()); ++k) values.push_back({id, k});
  };
  for (int32_t id = 0; id < old.size(); ++id) {
    if (!g.is_unit(id)) continue;
    std::vector<Value> values;
    for (const Read& x : g.reads(id)) values.push_back(x.value);
    results(id, values);
    ++r.launches_before;
    r.bytes_before += bytes_of(std::move(values));
  }
  std::vector<int32_t> at(p.size(), -1);
  for (int32_t i = 0; i < p.size(); ++i) {
    if (p.group(i).gone || bodies[i].nodes.empty()) continue;
    const GroupBody& b = bodies[i];
    FusionGroup x{.node = made[i], .fused = b.graph.get() != nullptr, .nodes = b.nodes, .clones = p.group(i).clones};
    std::vector<Value> values = b.outputs;
    if (b.graph) {
      for (Value v : b.inputs) values.push_back(g.root(v));
    } else {
      for (const Read& y : g.reads(b.nodes[0])) values.push_back(y.value);
      results(b.nodes[0], values);
    }
    x.bytes = bytes_of(std::move(values));
    for (const auto* list : {&x.nodes, &x.clones})
      for (int32_t id : *list) {
        const Node& n = old.node(id);
        if (g.role(id) == Role::kPointwise || g.role(id) == Role::kReduction) {
          x.flops += n.op->flops_per_point * static_cast<double>(g.points(id));
          continue;
        }
        x.flops += op_cost(old, n).flops;
      }
    at[i] = static_cast<int32_t>(r.groups.size());
    r.bytes_after += x.bytes;
    r.groups.push_back(std::move(x));
  }
  r.launches_after = static_cast<int32_t>(r.groups.size());
  for (const Refusal& f : p.refusals) {
    const int32_t a = p.of(f.a) < 0 ? -1 : at[p.of(f.a)], b = p.of(f.b) < 0 ? -1 : at[p.of(f.b)];
    if (a < 0 || b < 0 || a == b) continue;
    r.refused.push_back({std::min(a, b), std::max(a, b), f.a, f.b, f.why, static_cast<double>(f.bytes)});
  }
  auto pair = [](const FusionReport::Refused& x) { return std::pair{x.a, x.b}; };
  std::stable_sort(r.refused.begin(), r.refused.end(), [&](const auto& x, const auto& y) {
    return pair(x) != pair(y) ? pair(x) < pair(y) : x.bytes > y.bytes;
  });
  r.refused.erase(
      std::unique(r.refused.begin(), r.refused.end(), [&](const auto& x, const auto& y) { return pair(x) == pair(y); }),
      r.refused.end());
  std::stable_sort(r.refused.begin(), r.refused.end(), [](const auto& x, const auto& y) { return x.bytes > y.bytes; });
  list_separate(g, r);
  return r;
}

}  // namespace

FuseOptions fuse_options(const PassContext& context) {
  return {.rows = context.enabled("fuse_rows"),
          .epilogue = context.enabled("fuse_epilogue"),
          .siblings = context.enabled("fuse_siblings"),
          .duplicate = context.enabled("fuse_duplicate"),
          .prologue = context.facts.prologues && context.enabled("fuse_prologue"),
          .low_memory = context.facts.low_memory};
}

Ref<Graph> fuse(const Graph& g, const FuseOptions& options, FusionReport* report) {
  const FusionGraph graph(g, options.duplicate);
  Partition p(graph, {.rows = options.rows, .siblings = options.siblings});
  p.join_all();
  if (options.epilogue) join_epilogues(p);
  if (options.duplicate)
    duplicate_cheap(p, !options.prologue    ? ComputedOperands::kNone
                       : options.low_memory ? ComputedOperands::kAll
                                            : ComputedOperands::kCheap);
  const std::vector<GroupBody> bodies = lowerable_bodies(p);
  std::vector<int32_t> made;
  Ref<Graph> fused = build_fused(p, bodies, &made);
  if (report) {
    *report = make_report(p, bodies, made);
    report->after = fused;
  }
  return fused;
}

Ref<Graph> fuse(const Graph& g, PassContext& context) { return fuse(g, fuse_options(context), context.fusion); }

}  // namespace weft
