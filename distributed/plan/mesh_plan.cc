#include "distributed/plan/mesh_plan.h"

#include <map>

#include "compiler/cost/machine/machine_file.h"
#include "compiler/passes/pass_options.h"
#include "compiler/passes/pipeline.h"
#include "distributed/placement/replica.h"
#include "distributed/plan/choose.h"
#include "distributed/plan/estimate.h"
#include "distributed/plan/forbid.h"
#include "framework/ir/rewrite.h"
#include "ops/core/core.h"

namespace weft::dist {
namespace {

bool on_meta(const Graph& g) {
  for (int32_t id = 0; id < g.size(); ++id)
    for (const TensorType& t : g.node(id).outputs)
      if (t.device.type == DeviceType::kMeta) return true;
  return false;
}

// The graph with all values on the CPU, where emission makes indices and constants. A plan reads no values, so captured
// tensors need no memory.
Ref<Graph> off_meta(const Graph& g) {
  const auto on_cpu = [](TensorType t) {
    if (t.device.type == DeviceType::kMeta) t.device = Device::cpu();
    return t;
  };
  const Ref<Graph> out = changed_copy(g, [&](Node& n) {
    for (TensorType& t : n.outputs) t = on_cpu(t);
    n.attrs = n.attrs.without("device");
    if (n.attrs.has("body")) n.attrs = n.attrs.with("body", off_meta(*n.attrs.get<Ref<Graph>>("body")));
  });
  for (Ref<Cell>& cell : out->cells) {
    auto c = make_ref<Cell>();
    c->name = cell->name;
    c->type = on_cpu(cell->type);
    c->is_parameter = cell->is_parameter;
    c->requires_grad = cell->requires_grad;
    cell = std::move(c);
  }
  NoGrad guard;
  for (Tensor& t : out->captured)
    if (t.device().type == DeviceType::kMeta) t = zeros({}, {.dtype = t.dtype()}).expand(t.shape());
  return out;
}

// Sets the first choice of cut and recomputation that is estimated to fit into the budget, or else the smallest choice.
void choose_within_budget(MeshPartition& p, int64_t budget) {
  PipelinePartition& pipeline = *p.pipeline;
  size_t best = 0;
  int64_t least = INT64_MAX;
  for (size_t k = 0; k < pipeline.choices() && least > budget; ++k) {
    if (!lay_out(pipeline, p.mesh, p.arranged, k)) continue;
    pipeline.predict(p.mesh, *p.arranged[0], pipeline.cutting.machine);
    const int64_t peak = estimate_pipeline(pipeline, *p.arranged[0], pipeline.cutting.machine).peak_bytes;
    if (peak < least) least = peak, best = k;
  }
  lay_out(pipeline, p.mesh, p.arranged, best);
}

// A replica runs the same programs at any place, and has the whole state and all results of the step.
void check_replicas(const Mesh& mesh, const Graph& g, const Decision& d, const std::vector<Axes>& uneven) {
  const int replica = replica_axis(mesh);
  if (replica < 0) return;
  for (size_t c = 0; c < d.cells.size(); ++c)
    WEFT_CHECK(!d.cells[c].rest.splits(replica) && !d.cells[c].use.splits(replica), "mesh ", mesh.to_string(), ": '",
               g.cells[c]->name,
               "' is split over replica; need rules for other dimensions: each replica has the whole "
               "state");
  for (size_t i = 0; i < d.outputs.size(); ++i)
    WEFT_CHECK(!d.outputs[i].splits(replica), "mesh ", mesh.to_string(), ": result ", i, " of the step, ",
               g.type(g.outputs[i]),
               ", is split over replica; need results that are equal on all replicas, such as a "
               "mean over the batch");
  for (const Axes& axes : uneven)
    WEFT_CHECK(!axes.contains(static_cast<int8_t>(replica)), "mesh ", mesh.to_string(),
               ": values of the step do not divide over ", mesh.name(axes), "; need equal parts on all replicas");
}

}  // namespace

std::vector<MeshPartition::RankPlace> MeshPartition::places() const {
  std::vector<RankPlace> all;
  for (int r = 0; r < world.size(); ++r) {
    RankPlace p;
    for (const Mesh::Dim& d : world.dims()) {
      if (!d.over.empty()) continue;
      const auto own = static_cast<int>(world.coordinate(r, d.name));
      if (pipeline && d.name == "pp") {
        p.stage = own;
      } else {
        p.rank = p.rank * d.size + own;
      }
    }
    all.push_back(p);
  }
  return all;
}

MeshPartition plan_mesh(const Ref<Graph>& joint, const CompileOptions& how, const PartitionScope& scope) {
  if (how.plan.choose) return choose_plan(joint, how, scope);
  WEFT_CHECK(!how.verify_numerics || how.plan.wire == "f32", "plan: wire ", how.plan.wire,
             " with verify_numerics, whose sums are exact; need wire f32");
  std::vector<ForbidRule> forbid = parse_forbid(how.mesh, how.forbid);
  if (replica_axis(how.mesh) >= 0)
    for (const char* kind : {"allgather", "reducescatter", "alltoall", "permute", "broadcast"})
      forbid.push_back(parse_forbid(how.mesh, str_cat(kind, "@replica")));
  MeshPartition p{
      .mesh = without_pipeline(how.mesh), .world = how.mesh, .plan = settled(how.mesh, how.plan), .joint = joint};
  p.on_meta = on_meta(*joint);
  Ref<Graph> host = p.on_meta ? off_meta(*joint) : joint;
  const Mesh& mesh = p.mesh;
  if (const int ranks = pipeline_ranks(how.mesh); ranks > 1) {
    check_arguments(how.mesh, p.plan, {});
    p.pipeline =
        std::make_shared<PipelinePartition>(PipelinePartition{.ranks = ranks, .world = how.mesh.size(), .joint = host});
    p.pipeline->microbatch = one_microbatch(*host);
    p.joint = host = p.pipeline->microbatch.graph;
  }
  const Graph& step = *host;
  // Stages kPlace, kLocal and kArrange of the pipeline.
  const PassOptions passes = internal::pass_options(how);
  PassSteps steps(passes);
  steps.run("pin", [&] { p.pins = make_pins(mesh, step, p.plan, &p.notes); });
  if (p.pipeline && p.plan.pipeline_gather == "once")
    for (std::optional<CellPin>& pin : p.pins.cells)
      if (pin) pin->gather_again = false;
  steps.run("decide", [&] { p.decision = decide(mesh, step, p.pins); });
  for (std::string& note : p.decision.notes) p.notes.push_back(std::move(note));
  const std::vector<Axes> uneven = uneven_axes(mesh, p.decision);
  check_replicas(mesh, step, p.decision, uneven);
  std::map<std::vector<int64_t>, int> classes;
  for (int r = 0; r < mesh.size(); ++r) {
    if (!scope.every_class && r > 0 && r + 1 < mesh.size() && !uneven.empty()) {
      p.class_of.push_back(-1);
      continue;
    }
    std::vector<int64_t> at;
    for (const Axes& axes : uneven) at.push_back(mesh.coordinate(r, axes));
    const auto [it, fresh] = classes.emplace(std::move(at), static_cast<int>(p.locals.size()));
    p.class_of.push_back(it->second);
    if (!fresh) continue;
    LocalGraph local;
    steps.run("emit", [&] { local = emit(mesh, step, p.decision, p.pins, r); });
    local.graph = run_passes(with_sites(*local.graph), passes_of(PassStage::kLocal), passes);
    local.collectives = collectives_in(*local.graph, local.collectives);
    steps.run("forbid", [&] { check_forbidden(mesh, p.plan, forbid, local.collectives); });
    p.arranged.push_back(local.graph);
    p.locals.push_back(std::move(local));
  }
  // The report shows only the placements of results. The rest of a choice was for emit(), and is larger than the graph.
  for (NodeChoice& c : p.decision.nodes) {
    c.split = FactorSplit();
    c.in = std::vector<Spec>();
    c.out = std::vector<Spec>();
  }
  p.decision.prefer = std::vector<Spec>();
  CommunicationOptions communication = how.communication ? *how.communication : CommunicationOptions();
  if (scope.for_machine) {
    const Machine& machine = communication.machine = machine_named(how.machine);
    // Values that are gathered ahead may use the rest of the device memory.
    if (communication.overlapping.memory_bytes == 0)
      communication.overlapping.memory_bytes = static_cast<int64_t>(0.9 * machine.memory);
  }
  if (p.pipeline) {
    PipelinePartition& pipeline = *p.pipeline;
    steps.run("recompute", [&] { pipeline.recompute = recompute_policies(*p.arranged[0], how.memory_budget > 0); });
    steps.run("stages", [&] {
      plan_pipeline(pipeline, mesh, p.plan, communication.machine, how.memory_budget, p.arranged);
      if (how.memory_budget > 0) choose_within_budget(p, how.memory_budget);
    });
    check_forbidden(how.mesh, p.plan, forbid, transfers_of(*p.pipeline, *p.arranged[0]));
  } else {
    p.communication = arrange_communication(mesh, p.arranged, communication, passes);
  }
  for (size_t i = 0; i < p.locals.size(); ++i) {
    add_arrangement(p.communication, p.locals[i].collectives);
    p.locals[i].collectives = collectives_in(*p.arranged[i], p.locals[i].collectives);
  }
  return p;
}

}  // namespace weft::dist
