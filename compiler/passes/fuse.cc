#include "compiler/passes/fuse.h"

#include <algorithm>
#include <unordered_map>

#include "compiler/kir/lower_group.h"
#include "compiler/passes/fuse_build.h"
#include "compiler/passes/fuse_epilogue.h"
#include "compiler/passes/fuse_report.h"
#include "framework/base/switches.h"
#include "framework/ir/op_def.h"

namespace weft {
namespace {

using namespace fusion;

constexpr int kMaxRounds = 40;

/// Groups as the kernels can do them: one that cannot be lowered is taken apart until all can.
std::vector<Body> lowerable_bodies(Partition& p) {
  std::unordered_map<uint64_t, std::string> known;
  std::vector<Body> bodies;
  for (int round = 0;; ++round) {
    WEFT_BUG_IF(round > kMaxRounds + p.graph().size(), "fuse: groups are taken apart without end");
    const Flow flow(p);
    bodies.clear();
    bodies.resize(p.size());
    bool changed = false;
    for (int32_t i = 0; i < static_cast<int32_t>(bodies.size()); ++i) {
      if (p.group(i).gone) continue;
      bodies[i] = make_body(p, flow, i);
      if (!bodies[i].graph) continue;
      auto [it, fresh] = known.try_emplace(structural_hash(*bodies[i].graph));
      if (fresh) it->second = kir::cannot_lower(*bodies[i].graph);
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

}  // namespace

std::span<const Pass> fusion_parts() {
  static constexpr Pass kParts[] = {
      {"fuse_rows", nullptr, "part of fuse: reductions with what surrounds them"},
      {"fuse_epilogue", nullptr, "part of fuse: what follows a product, on its tile"},
      {"fuse_siblings", nullptr, "part of fuse: groups that read the same"},
      {"fuse_duplicate", nullptr, "part of fuse: cheap values computed again by their readers"},
  };
  return kParts;
}

FuseOptions fuse_options(const std::vector<std::string>& disable) {
  std::vector<std::string> off = disable;
  const std::string names = switch_value("WEFT_DISABLE");
  for (size_t at = 0; at < names.size();) {
    const size_t end = std::min(names.find(',', at), names.size());
    off.push_back(names.substr(at, end - at));
    at = end + 1;
  }
  auto on = [&](const char* name) {
    return std::find(off.begin(), off.end(), name) == off.end() &&
           std::find(off.begin(), off.end(), "all") == off.end();
  };
  return {on("fuse_rows"), on("fuse_epilogue"), on("fuse_siblings"), on("fuse_duplicate")};
}

Ref<Graph> fuse(const Graph& g, const FuseOptions& options, FusionReport* report) {
  const FusionGraph graph(g, options.duplicate);
  Partition p(graph, {.rows = options.rows, .siblings = options.siblings});
  p.join_all();
  if (options.epilogue) join_epilogues(p);
  if (options.duplicate) duplicate_cheap(p);
  const std::vector<Body> bodies = lowerable_bodies(p);
  std::vector<int32_t> made;
  Ref<Graph> fused = build_fused(p, bodies, &made);
  (void)report;
  return fused;
}

Ref<Graph> fuse(const Graph& g) { return fuse(g, fuse_options(), nullptr); }

}  // namespace weft
