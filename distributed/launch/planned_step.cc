#include "distributed/launch/planned_step.h"

#include <atomic>

#include "distributed/plan/collectives.h"
#include "framework/base/hash.h"
#include "framework/dispatch/rank/flight.h"
#include "framework/io/file.h"
#include "ops/core/collectives/collective_types.h"

namespace weft::dist {

static uint64_t hash_of(const std::vector<std::vector<diagnose::PlannedRow>>& programs, const std::string& mesh) {
  uint64_t h = hash_text(mesh);
  for (const auto& rows : programs) {
    h = hash_combine(h, rows.size());
    for (const diagnose::PlannedRow& r : rows) {
      for (const std::string& text : {r.axes, r.what, r.line}) h = hash_text(text, h);
      for (uint64_t value :
           {static_cast<uint64_t>(r.kind), static_cast<uint64_t>(r.dtype), r.site, static_cast<uint64_t>(r.bytes)})
        h = hash_combine(h, value);
    }
  }
  return h;
}

std::vector<std::vector<diagnose::PlannedRow>> planned_rows(const MeshPartition& plan,
                                                            const std::vector<internal::PreparedGraph>& planned) {
  std::vector<std::vector<diagnose::PlannedRow>> programs;
  for (size_t i = 0; i < planned.size(); ++i) {
    const internal::MemoryLayout& p = planned[i].plan;
    const std::vector<PlannedCollective>& known = plan.pipeline ? plan.launched[i] : plan.locals[i].collectives;
    std::vector<diagnose::PlannedRow>& rows = programs.emplace_back();
    for (size_t t = 0; t <= p.launches.size(); ++t) {
      if (p.commit_point == static_cast<int32_t>(t))
        rows.push_back({.axes = "world", .phase = "commit", .what = "", .line = "", .why = "all ranks can write"});
      if (t == p.launches.size() || p.launches[t].copy) continue;
      const int32_t node = p.launches[t].node;
      const Node& n = p.graph->node(node);
      if (!collective_of(n)) continue;
      const PlannedCollective c = collectives_in(*p.graph, {&node, 1}, known)[0];
      const bool combines = c.kind == Collective::kAllReduce || c.kind == Collective::kReduceScatter;
      rows.push_back({.kind = c.kind,
                      .axes = c.axes,
                      .dtype = c.dtype,
                      .op = combines && n.attrs.has("op") ? internal::reduce_op(n.attrs, n.op->name) : ReduceOp::kSum,
                      .bytes = c.bytes,
                      .site = static_cast<uint64_t>(c.site),
                      .phase = to_string(c.phase),
                      .what = c.what,
                      .line = c.line,
                      .why = c.why});
    }
  }
  return programs;
}

uint16_t save_planned_step(const Mesh& mesh, const MeshPartition& plan,
                           const std::vector<internal::PreparedGraph>& planned,
                           const std::vector<std::pair<int, int>>& program_of) {
  static std::atomic<uint16_t> steps{0};
  diagnose::PlannedStep step{.number = ++steps, .mesh = mesh.to_string()};
  step.programs = planned_rows(plan, planned);
  step.hash = hash_of(step.programs, step.mesh);
  // Keeps only the programs of these ranks.
  std::map<int, int> kept;
  std::vector<std::vector<diagnose::PlannedRow>> programs;
  for (const auto& [rank, program] : program_of) {
    const auto [it, added] = kept.emplace(program, static_cast<int>(programs.size()));
    if (added) programs.push_back(step.programs[program]);
    step.program_of[rank] = it->second;
    if (flight::RecordRing* const ring = flight::ring(rank, mesh.size())) ring->set_plan(step.hash);
  }
  step.programs = std::move(programs);
  try {
    const int first = program_of.empty() ? 0 : program_of[0].first;
    const std::string path = str_cat(flight::folder(), "/", diagnose::planned_name(first, step.number));
    WEFT_CHECK(!io::exists(path) || io::read_file(path, int64_t{1} << 30).starts_with("{\"number\":"), path,
               ": exists and is not a plan of a step; need another folder in ", flight::kFolderVariable);
    io::write_file_atomic(path, diagnose::to_json(step));
  } catch (const Error& e) {
    internal::warn(str_cat("flight recorder: ", e.what()));
  }
  return static_cast<uint16_t>(step.number);
}

}  // namespace weft::dist
