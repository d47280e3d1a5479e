// ZeRO (Rajbhandari et al. 2020): parameters, gradients and optimiser state are sharded over the data dimensions.
#include "distributed/strategies/strategy.h"

namespace weft::dist {
namespace {

void settle(const Mesh& mesh, Plan& plan) {
  const Mesh::Dim* fsdp = mesh.find("fsdp");
  if (plan.zero == -1) plan.zero = fsdp && fsdp->size > 1 ? 3 : 0;
}

void annotate(StrategyContext& s) {
  const int stage = s.plan.zero;
  if (stage == 0) return;
  const Axes fsdp = s.axes("fsdp");
  Axes over = fsdp.empty() ? s.axes("dp") : fsdp;
  for (const char* more : {"ep", "cp"})
    if (const Mesh::Dim* d = s.mesh.find(more); d && d->over.empty())
      for (int8_t a : d->axes) over.push_back(a);
  if (over.empty())
    s.notes.push_back(str_cat("zero ", stage,
                              ": the mesh has no dp, fsdp, cp or ep to shard over; every rank keeps all that it uses"));
  for (ParameterPin& p : s.parameters) {
    p.sharded_at_rest = p.gather_again = stage == 3;
    p.reduce_each = stage >= 2;
    Axes own, all = over;
    if (p.expert && s.plan.sequence)
      for (int8_t a : s.axes("tp")) all.push_back(a);
    for (int8_t a : all) {
      Axes one;
      one.push_back(a);
      if (!p.uses(one)) own.push_back(a);
    }
    const int64_t n = s.mesh.parts(own);
    if (n == 1 || p.shape.numel() < n) continue;
    // Chooses the first dim that divides; else the largest, split unevenly.
    int best = -1;
    for (int d = 0; d < p.shape.size() && best < 0; ++d)
      if (p.shape[d] % (n * s.mesh.parts(p.split[d])) == 0) best = d;
    for (int d = 0; d < p.shape.size() && p.shape.size() > 0; ++d)
      if (best < 0 || (p.shape[best] % (n * s.mesh.parts(p.split[best])) != 0 && p.shape[d] > p.shape[best])) best = d;
    if (best < 0 || p.shape[best] < n * s.mesh.parts(p.split[best])) continue;
    p.sharded = own;
    p.sharded_dim = best;
    p.why_sharded = str_cat("zero-", stage);
  }
}

std::vector<std::string> stages(const Mesh& mesh, const Plan& plan) {
  if (plan.zero >= 0) return {};
  if (mesh.find("fsdp")) return {"3", "2", "1"};
  if (mesh.find("dp")) return {"0", "1", "2", "3"};
  return {"0"};
}

std::string avoid(const Mesh&, const PlannedCollective& c) {
  if (c.subject != Subject::kParameter || c.kind != Collective::kAllGather) return {};
  return c.phase == Phase::kUpdate    ? "zero 0 keeps the update whole on every rank"
         : c.phase == Phase::kForward ? "zero 2 or less keeps parameters whole between steps"
                                      : "zero 2 or less keeps parameters whole, for backward too";
}

constexpr OptionRow kOptions[] = {
    {.name = "zero",
     .field = &Plan::zero,
     .least = 0,
     .most = 3,
     .need = "a stage from 0 to 3",
     .help = "ZeRO stage: 1 shards optimiser state over the data ranks, 2 gradients too, 3 parameters too; -1: 3 over "
             "fsdp, else 0",
     .tried = stages},
};

}  // namespace

const Strategy sharded_state = {
    .name = "sharded_state", .options = kOptions, .annotate = annotate, .settle = settle, .avoid = avoid};

}  // namespace weft::dist
