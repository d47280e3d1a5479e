#include "tools/plan/report/advice.h"

#include <algorithm>
#include <cmath>

#include "compiler/cost/collective_seconds.h"
#include "framework/base/error.h"
#include "framework/base/units.h"

namespace weft::planner {

// Fully sharded data parallelism alone, beside the best plan.
static std::string fsdp_alone(const Workload& s, const PricedCandidate& best) {
  const int replicas = best.candidate.replica;
  const Search alone = search_plans(s, {.dimensions = {{"replica", replicas}, {"fsdp", s.gpus / replicas}}}, 1);
  if (alone.best.empty())
    return str_cat("fsdp alone ", alone.least_memory > 0 ? "does not fit" : "does not divide the batch");
  const PricedCandidate& plan = alone.best[0];
  if (plan.candidate.text() == best.candidate.text()) return "fsdp alone is the best plan";
  const bool slower = plan.cost.step >= best.cost.step;  // a --mesh may be slower
  const std::string more =
      formatted("%.0f %% %s than ", 100 * std::abs(plan.cost.step / best.cost.step - 1), slower ? "longer" : "less");
  return str_cat("fsdp alone, ", plan.candidate.text(), ", takes ", seconds_text(plan.cost.step), ", ", more,
                 best.candidate.text(), slower ? str_cat(" (", why_slower(plan.cost, best.cost), ")") : std::string());
}

Limits limits_of(const Workload& s) {
  Limits l;
  const int node = s.machine.links.node, nodes = (s.gpus + node - 1) / node;
  const double bandwidth = bus_bandwidth(Collective::kAllGather, std::max(2, s.gpus), std::max(1, nodes), s.machine);
  // An element of 4 bytes takes twice the time of the form's 2 bytes, and unused experts add no compute.
  l.closed_form =
      fsdp_comm_limit(s.tokens(), bandwidth * 2 / static_cast<double>(itemsize(s.activations)) * s.model.used_share(),
                      s.peak_flops() * s.machine.reached);
  const auto hidden = [&](int gpus) {
    const FsdpSeconds t = fsdp_seconds(s, gpus);
    return t.communication <= t.compute;
  };
  int within = 1, beyond = 2;
  while (beyond <= kMostGpus && hidden(beyond)) within = beyond, beyond *= 2;
  while (beyond <= kMostGpus && beyond - within > 1) {
    const int middle = within + (beyond - within) / 2;
    (hidden(middle) ? within : beyond) = middle;
  }
  l.communication = within;
  l.batch = fsdp_batch_limit(s.tokens(), static_cast<double>(s.sequence));
  l.scale_case = scale_case(s.gpus, l.communication, l.batch);
  return l;
}

std::string advice(const Workload& s, const Limits& l, const PricedCandidate& best) {
  const std::string closed =
      l.closed_form >= 1
          ? formatted(" (%.0f without latency and with gradients as wide as weights)", std::min(l.closed_form, 1e15))
          : "";
  const std::string limits =
      str_cat("compute hides the gathers and reductions of fully sharded data parallelism (fsdp) up to ",
              static_cast<int64_t>(l.communication), " GPUs", l.communication >= kMostGpus ? " or more" : "", closed,
              ", and the batch has ", static_cast<int64_t>(l.batch + 0.5), " sequences for ", s.gpus, " GPUs: ");
  switch (l.scale_case) {
    case ScaleCase::kFsdp:
      return str_cat("case 1, within both limits: ", limits, fsdp_alone(s, best));
    case ScaleCase::kBatch:
      return str_cat("case 2, limited by the batch: ", limits,
                     "split sequences (cp) or matrices (tp) too; pp does not help");
    case ScaleCase::kComm:
      return str_cat("case 3, limited by communication: ", limits, "use pp, or tp between nodes; ",
                     fsdp_alone(s, best));
    case ScaleCase::kBoth:
      break;
  }
  return str_cat("case 4, beyond both limits: ", limits, "use cp or tp together with pp, or tp between nodes");
}

}  // namespace weft::planner
