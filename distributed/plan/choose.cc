#include "distributed/plan/choose.h"

#include <algorithm>
#include <optional>

#include "distributed/plan/estimate.h"
#include "distributed/plan/words.h"

namespace weft::dist {
namespace {

std::vector<Mesh> meshes_of(int world, int node) {
  std::vector<Mesh> out;
  for (int tp = 1; tp <= std::min(world, std::min(node, 8)); tp *= 2) {
    if (world % tp != 0) break;
    for (const char* data : {"dp", "fsdp"}) {
      std::vector<std::pair<std::string, int>> dims;
      if (world > tp) dims.emplace_back(data, world / tp);
      if (tp > 1) dims.emplace_back("tp", tp);
      if (world == tp && std::string_view(data) == "fsdp") continue;
      out.emplace_back(dims);
    }
  }
  return out;
}

}  // namespace

std::vector<LayOut> candidate_layouts(const LayOut& how) {
  std::vector<Mesh> meshes;
  if (how.mesh.size() > 1 || how.plan.world <= 1) {
    meshes.push_back(how.mesh);
  } else {
    meshes = meshes_of(how.plan.world, machine_preset(how.machine).node);
  }
  std::vector<LayOut> out;
  for (const Mesh& mesh : meshes) {
    const bool sharded = mesh.find("fsdp"), data = sharded || mesh.find("dp"), tp = mesh.find("tp");
    std::vector<int> stages{how.plan.zero};
    if (how.plan.zero < 0)
      stages = !data ? std::vector<int>{0} : sharded ? std::vector<int>{3, 2, 1} : std::vector<int>{0, 1, 2, 3};
    for (int zero : stages)
      for (bool sequence : tp ? std::vector<bool>{true, false} : std::vector<bool>{true})
        for (bool keep : tp&& sequence ? std::vector<bool>{false, true} : std::vector<bool>{false}) {
          LayOut one = how;
          one.mesh = mesh;
          one.plan.choose = false;
          one.plan.zero = zero;
          one.plan.sequence = sequence;
          one.plan.keep_gathered = keep;
          out.push_back(std::move(one));
        }
  }
  return out;
}

std::string layout_text(const LayOut& how) {
  return cat(how.mesh.size() > 1 ? how.mesh.to_string() : "one rank", ", zero ", how.plan.zero,
             how.mesh.find("tp") ? how.plan.sequence ? ", sequence" : ", no sequence" : "",
             how.plan.keep_gathered ? ", gathered kept" : "");
}

MeshPlan choose_plan(const Ref<Graph>& joint, const LayOut& how) {
  const std::vector<LayOut> candidates = candidate_layouts(how);
  const MachinePreset& machine = machine_preset(how.machine);
  std::vector<RejectedPlan> tried(candidates.size());
  std::optional<size_t> best;
  std::optional<Error> first;
  int64_t least = INT64_MAX;
  for (size_t i = 0; i < candidates.size(); ++i) {
    RejectedPlan& r = tried[i];
    r.text = layout_text(candidates[i]);
    try {
      LayOut one = candidates[i];
      one.every_class = false;
      const MeshPlan p = plan_mesh(joint, one);
      const Estimate e = estimate(one.mesh, *p.arranged[0], p.locals[0].collectives, machine);
      r.step_seconds = e.step_seconds();
      r.peak_bytes = e.peak_bytes;
      least = std::min(least, r.peak_bytes);
    } catch (const Error& e) {
      r.reason = e.what();
      if (!first) first = e;
      continue;
    }
    if (how.memory_limit > 0 && r.peak_bytes > how.memory_limit) {
      r.reason = cat("needs more than ", bytes_text(static_cast<double>(how.memory_limit)));
      continue;
    }
    // Of equal times the one with less memory.
    const auto key = [](const RejectedPlan& x) { return std::make_pair(x.step_seconds, x.peak_bytes); };
    if (!best || key(r) < key(tried[*best])) best = i;
  }
  if (!best && first && least == INT64_MAX) throw *first;
  WEFT_CHECK_AS(kResourceExhausted, best, "plan: none of ", candidates.size(), " plans for ",
                how.mesh.size() > 1 ? how.mesh.size() : how.plan.world, " ranks fits ", how.memory_limit,
                " bytes; the smallest needs about ", least);
  MeshPlan p = plan_mesh(joint, candidates[*best]);
  for (size_t i = 0; i < tried.size(); ++i) {
    if (i == *best) continue;
    if (tried[i].reason.empty()) {
      const double more = tried[i].step_seconds / tried[*best].step_seconds - 1;
      tried[i].reason = more > 0 ? cat("takes ", static_cast<int64_t>(more * 100 + 0.5), "% longer")
                                 : "takes as long and needs more memory";
    }
    p.rejected.push_back(tried[i]);
  }
  std::stable_sort(p.rejected.begin(), p.rejected.end(), [](const RejectedPlan& a, const RejectedPlan& b) {
    const double never = 1e30;
    return (a.step_seconds > 0 ? a.step_seconds : never) < (b.step_seconds > 0 ? b.step_seconds : never);
  });
  p.notes.push_back(cat("chosen of ", candidates.size(), " plans: ", layout_text(candidates[*best]), " (predicted ",
                        seconds_text(tried[*best].step_seconds), ", ",
                        bytes_text(static_cast<double>(tried[*best].peak_bytes)), ")"));
  return p;
}

}  // namespace weft::dist
