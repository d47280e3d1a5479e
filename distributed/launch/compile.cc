#include "distributed/launch/compile.h"

#include "compiler/exec/entry.h"
#include "distributed/launch/step.h"
#include "distributed/plan/forbid.h"

namespace weft::dist {
namespace {

constexpr double kMostSeconds = 1e9;  // about 30 years: deadlines fit into a clock's 64 bits of nanoseconds

class MeshPartitioner final : public internal::Partitioner {
 public:
  explicit MeshPartitioner(LayOut how) : how_(std::move(how)) {}
  std::unique_ptr<internal::PartitionedStep> partition(const Ref<Graph>& joint,
                                                       const weft::CompileOptions& options) override {
    return std::make_unique<MeshStep>(joint, how_, options);
  }

 private:
  LayOut how_;
};

// A step that has a plan and cannot run.
class PlannedStep final : public internal::PartitionedStep {
 public:
  explicit PlannedStep(MeshPlan p) : plan(std::move(p)) {}
  std::vector<Tensor> run(std::span<const Tensor>) override {
    WEFT_CHECK_AS(kFailedPrecondition, false,
                  "plan: this step was only planned; use dist::compile for a step that runs");
    return {};
  }
  std::string report() const override { return PlanReport(plan, "h100").to_string(); }
  const Graph* graph(const std::string& stage) const override {
    return stage == "partitioned" ? plan.locals[0].graph.get() : nullptr;
  }
  void fill(CompileStats&) const override {}

  const MeshPlan plan;
};

class PlanOnly final : public internal::Partitioner {
 public:
  explicit PlanOnly(LayOut how) : how_(std::move(how)) {
    how_.for_machine = how_.machine != "cpu";
    how_.every_class = std::max(how_.mesh.size(), how_.plan.world) <= 64;
  }
  std::unique_ptr<internal::PartitionedStep> partition(const Ref<Graph>& joint, const weft::CompileOptions&) override {
    return std::make_unique<PlannedStep>(plan_mesh(joint, how_));
  }

 private:
  LayOut how_;
};

LayOut lay_out(const CompileOptions& o) {
  return {.mesh = o.mesh,
          .plan = o.plan,
          .communication = o.communication,
          .forbid = o.forbid,
          .disable = o.disable,
          .machine = o.machine,
          .memory_limit = o.memory_budget,
          .timeout = o.timeout};
}

}  // namespace

weft::CompileOptions CompileOptions::for_one_rank() const {
  parse_forbid(mesh, forbid);
  WEFT_CHECK(timeout > 0 && timeout <= kMostSeconds, "compile: timeout is ", timeout,
             " seconds; need more than 0 and at most ", kMostSeconds);
  weft::CompileOptions o{.memory_budget = memory_budget,
                         .numerics = numerics,
                         .verify_numerics = verify_numerics,
                         .disable = disable,
                         .kernel_cache = kernel_cache};
  const bool any_mesh = plan.choose && mesh.size() <= 1 && plan.world > 1;
  WEFT_CHECK(plan.world >= 0 && plan.world <= 1 << 20, "plan: automatic over ", plan.world, " ranks; need 1 to ",
             1 << 20);
  if (mesh.find("tp") || any_mesh)
    o.disable.push_back("linear_cross_entropy");  // tp splits the loss's table over ranks
  if (mesh.size() > 1 || any_mesh) o.partitioner = std::make_shared<MeshPartitioner>(lay_out(*this));
  return o;
}

}  // namespace weft::dist

namespace weft::internal {

CompileOptions options_to_plan(const dist::CompileOptions& options) {
  dist::machine_preset(options.machine);
  CompileOptions o = options.for_one_rank();
  o.partitioner = std::make_shared<dist::PlanOnly>(dist::lay_out(options));
  o.memory_budget = 0;
  return o;
}

dist::PlanReport plan_report(const CompiledCore& core, const std::string& machine) {
  const Entry& e = current_entry(core, "plan");
  if (auto* step = dynamic_cast<const dist::MeshStep*>(e.partitioned.get()))
    return {step->plan(), machine, step->planned_peak_bytes()};
  if (auto* planned = dynamic_cast<const dist::PlannedStep*>(e.partitioned.get())) return {planned->plan, machine};
  return {dist::plan_mesh(e.joint, {}), machine, e.plan.peak_bytes()};
}

dist::World& world_of(const CompiledCore& core) {
  const Entry& e = current_entry(core, "world");
  auto* step = dynamic_cast<dist::MeshStep*>(e.partitioned.get());
  WEFT_CHECK_AS(kFailedPrecondition, step, "world: the step runs on one rank or was only planned");
  return step->world();
}

}  // namespace weft::internal
