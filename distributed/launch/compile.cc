#include "distributed/launch/compile.h"

#include "compiler/cost/machine/machine_file.h"
#include "compiler/exec/entry.h"
#include "distributed/launch/live_replicas.h"
#include "distributed/launch/step.h"
#include "distributed/placement/replica.h"
#include "distributed/plan/forbid.h"
#include "distributed/strategies/strategies.h"
#include "framework/base/switches.h"
#include "framework/dispatch/rank/flight.h"

namespace weft::dist {
namespace {

constexpr double kMostSeconds = 1e9;  // about 30 years; a deadline must fit into 64 bits of nanoseconds

// A step that has a plan but cannot run.
class UnrunnableStep final : public internal::PartitionedStep {
 public:
  UnrunnableStep(const Ref<Graph>& joint, const CompileOptions& options)
      : plan_(plan_mesh(joint, options,
                        {.for_machine = options.machine != "cpu",
                         .every_class = std::max(options.mesh.size(), options.plan.world) <= 64})) {}
  std::vector<Tensor> run(std::span<const Tensor>) override { planned_only(); }
  World& world() override { planned_only(); }
  std::string report() const override { return plan("h100-sxm").to_string(); }
  StepRecord record(int) const override { planned_only(); }
  PlanReport plan(const std::string& machine) const override { return {plan_, machine}; }
  const Graph* graph(const std::string& stage) const override {
    return stage == "partitioned" ? plan_.locals[0].graph.get() : nullptr;
  }
  void fill(CompileStats&) const override {}

 private:
  [[noreturn]] static void planned_only() {
    internal::fail(Code::kFailedPrecondition,
                   "plan: this step was only planned; use dist::compile for a step that runs");
  }
  const MeshPartition plan_;
};

template <class Step>
std::unique_ptr<internal::PartitionedStep> make(const Ref<Graph>& joint, const CompileOptions& options) {
  const flight::HostPhase phase(flight::Phase::kPlan);
  return std::make_unique<Step>(joint, options);
}

}  // namespace
}  // namespace weft::dist

namespace weft::internal {

CompileOptions for_mesh(CompileOptions o) {
  dist::parse_forbid(o.mesh, o.forbid);
  if (o.communication) check_machine(o.communication->machine);
  WEFT_CHECK(o.plan.world >= 0 && o.plan.world <= 1 << 20, "plan: automatic over ", o.plan.world, " ranks; need 1 to ",
             1 << 20);
  WEFT_CHECK(o.plan.world == 0 || o.mesh.size() <= 1, "compile: plan is automatic(", o.plan.world,
             "), which chooses the mesh, and mesh is ", o.mesh.to_string(),
             "; need one of them: automatic() chooses the options for a given mesh");
  dist::check_options(o.plan);
  WEFT_CHECK(o.timeout > 0 && o.timeout <= dist::kMostSeconds, "compile: timeout is ", o.timeout,
             " seconds; need more than 0 and at most ", dist::kMostSeconds);
  const bool any_mesh = o.plan.choose && o.mesh.size() <= 1 && o.plan.world > 1;
  if (o.mesh.find("tp") || any_mesh)
    o.disable.push_back("linear_cross_entropy");  // tp splits the loss's table over ranks
  const bool alone =
      dist::has_replicas(o.mesh) && dist::LiveReplicas::current();  // one live replica also commits by a vote
  if (o.mesh.size() <= 1 && !any_mesh && !alone) return o;
  const std::string on = any_mesh ? str_cat(o.plan.world, " ranks") : str_cat("mesh ", o.mesh.to_string());
  WEFT_CHECK(o.enabled, "compile: enabled is false for ", on, "; need true: only captured steps run on a mesh");
  const std::string exec = switch_value("WEFT_EXEC");
  WEFT_CHECK(exec == "compiled", "WEFT_EXEC: got '", exec, "' for ", on,
             "; need compiled: a mesh runs compiled steps only");
  WEFT_CHECK(!o.tf32, "compile: tf32 is true for ", on, "; need false: the ranks are threads of the CPU");
  o.partitioner = dist::make<dist::MeshStep>;
  return o;
}

CompileOptions for_planning(CompileOptions o) {
  machine_named(o.machine);
  o = for_mesh(std::move(o));
  o.partitioner = dist::make<dist::UnrunnableStep>;
  return o;
}

dist::PlanReport plan_report(const CompiledCore& core, const std::string& machine) {
  const Entry& e = current_entry(core, "plan");
  if (e.partitioned) return e.partitioned->plan(machine);
  return {dist::plan_mesh(e.joint, {}), machine, e.plan.peak_bytes()};
}

dist::World& world_of(const CompiledCore& core) {
  const Entry& e = current_entry(core, "world");
  WEFT_CHECK_AS(kFailedPrecondition, e.partitioned, "world: the step runs on one rank");
  return e.partitioned->world();
}

dist::CellShards shards_of(const CompiledCore& core, bool made) {
  auto* const step = dynamic_cast<dist::MeshStep*>(current_entry(core, "shards_of").partitioned.get());
  return step ? step->shards(made) : dist::CellShards();
}

}  // namespace weft::internal
