#include "tools/plan/passes.h"

#include <algorithm>

#include "framework/base/error.h"

namespace weft::planner {

Timeline run_passes(const std::vector<Pass>& passes, bool spans) {
  Timeline r;
  double compute = 0, network = 0;
  const auto mark = [&](TimelineSpan::Row row, double from, double to, std::string name, double bytes = 0) {
    if (spans && to > from) r.spans.push_back({row, from, to, std::move(name), bytes});
  };
  const auto communicate = [&](double ready, double seconds, const char* what, const Pass& p, double bytes) {
    if (seconds <= 0) return network;
    const double from = std::max(network, ready);
    network = from + seconds;
    r.network += seconds;
    mark(TimelineSpan::kNetwork, from, network, str_cat(what, p.name), bytes);
    return network;
  };
  const auto gather = [&](double ready, const Pass& p) {
    return communicate(ready, p.gather, "gather weights of ", p, p.gather_bytes);
  };
  double gathered = passes.empty() || passes[0].gather <= 0 ? 0 : gather(0, passes[0]);
  for (size_t i = 0; i < passes.size(); ++i) {
    const Pass& p = passes[i];
    const double from = p.gather > 0 ? std::max(compute, gathered) : compute;
    mark(TimelineSpan::kExposed, compute, from, str_cat("wait for weights of ", p.name));
    r.exposed += from - compute;
    if (i + 1 < passes.size() && passes[i + 1].gather > 0) gathered = gather(from, passes[i + 1]);
    mark(TimelineSpan::kCompute, from, from + p.compute, p.name);
    compute = from + p.compute + p.blocking;
    mark(TimelineSpan::kInPass, from + p.compute - std::min(p.hidden, p.compute), compute,
         str_cat("collectives in ", p.name), p.blocking_bytes);
    mark(TimelineSpan::kExposed, from + p.compute, compute, str_cat("wait for collectives in ", p.name));
    r.compute += p.compute;
    r.blocking += p.blocking;
    communicate(compute, p.reduce, "reduce gradients of ", p, p.reduce_bytes);
  }
  mark(TimelineSpan::kExposed, compute, network, "wait for the last gradients");
  r.exposed += std::max(0.0, network - compute);
  r.seconds = std::max(compute, network);
  return r;
}

}  // namespace weft::planner
