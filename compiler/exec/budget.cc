// Memory budgets. Policies of rematerialisation are listed without regard to the budget, in order of their cost in
// time. The first policy whose plan fits is taken, so a smaller budget never gives a larger peak.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "compiler/cost/keep_cost.h"
#include "compiler/cost/peak_estimate.h"
#include "compiler/exec/entry.h"
#include "compiler/passes/pass_options.h"
#include "compiler/passes/recompute.h"
#include "framework/base/switches.h"

namespace weft::internal {
namespace {

struct PolicyCandidate {
  RecomputePolicy policy;
  RecomputeResult result;
};

// Policies with rising prices of a stored byte: from recomputing only nearly free values to recomputing every value
// that saves memory. A price applies to the part of the step up to a narrow place: its values live longest, and they
// are computed again last, when the other values are gone. Later values have a lower price: the backward part reads
// them first, so they are better kept. The last policies keep fewer narrow places.
std::vector<RecomputePolicy> policies(const std::vector<double>& narrow) {
  constexpr auto& kPrices = kStoredBytePrices;
  constexpr double kFree = kPrices[0];
  std::vector<double> shares;
  for (size_t part = 1; part <= 4; ++part)
    shares.push_back(narrow.size() >= 4 ? narrow[part * narrow.size() / 5] : static_cast<double>(part) / 5);
  std::vector<RecomputePolicy> all = {{}};
  for (size_t k = 1; k < std::size(kPrices); ++k) {
    const RecomputePolicy whole{.stored_byte = kPrices[k], .expensive = true, .span = 1, .share = 1};
    all.push_back(whole);
    for (double share : shares)
      for (double late : {kFree, kPrices[k - 1]}) {
        all.push_back(whole);
        all.back().share = share;
        all.back().late_stored_byte = late;
      }
  }
  for (int32_t span = 2; span < std::min<int32_t>(static_cast<int32_t>(narrow.size()), 64);
       span += std::max(1, span / 2))
    all.push_back({.stored_byte = 128, .expensive = true, .span = span, .share = 1});
  return all;
}

// The policies with their graphs, the cheapest first. Leaves out policies that cost more than an earlier one and are
// not estimated to need less memory.
std::vector<PolicyCandidate> candidates(const Graph& g, Rematerialisation& about) {
  std::vector<PolicyCandidate> all;
  const KeepCosts costs(g, RecomputePolicy().small);
  for (const RecomputePolicy& p : policies(recompute_by(g, {.expensive = true, .span = 1}, costs).narrow))
    all.push_back({p, recompute_by(g, p, costs)});
  about.policies = static_cast<int32_t>(all.size());
  std::stable_sort(all.begin(), all.end(), [](const PolicyCandidate& a, const PolicyCandidate& b) {
    return a.result.seconds < b.result.seconds;
  });
  // Estimates are off by a few percent, so a few policies about as good as the best are tried too.
  constexpr double kSurely = 0.98, kPerhaps = 1.03;
  constexpr int kTries = 3;
  double least = INFINITY;
  int tries = 0;
  std::vector<PolicyCandidate> kept;
  for (PolicyCandidate& c : all) {
    if (!c.result.graph) continue;
    const bool seen = std::any_of(kept.begin(), kept.end(), [&](const PolicyCandidate& k) {
      return k.result.kept_bytes == c.result.kept_bytes && k.result.copies == c.result.copies;
    });
    if (seen) continue;
    const double peak = static_cast<double>(estimated_peak(*c.result.graph));
    if (peak < kSurely * least)
      tries = 0;
    else if (peak > kPerhaps * least || ++tries > kTries)
      continue;
    least = std::min(least, peak);
    kept.push_back(std::move(c));
  }
  return kept;
}

void recompute(Entry& e, int64_t budget, const CompileOptions& options) {
  const Ref<Graph> before = e.before_recompute ? e.before_recompute : e.joint;
  Rematerialisation& about = e.remat;
  about = {.tried = true, .peak_before = e.plan.peak_bytes(), .least_peak = e.plan.peak_bytes()};
  const RecomputeResult usual = recompute_by(*before, {});
  about.kept_before = usual.kept_bytes;
  std::vector<PolicyCandidate> all = candidates(*before, about);
  auto try_it = [&](const PolicyCandidate& c) {
    PreparedGraph p = plan_joint(c.result.graph, e.key.layouts, options, e.low_memory, about.least_peak);
    ++about.plans;
    about.least_peak = std::min(about.least_peak, p.plan.peak_bytes());
    if (switch_int("WEFT_DEBUG") >= 2)
      std::fprintf(stderr,
                   "weft: budget: byte %g, share %g, then %g, span %d: %lld kept, %d copies, %.3f ms, peak %lld\n",
                   c.policy.stored_byte, c.policy.share, c.policy.late_stored_byte, c.policy.span,
                   static_cast<long long>(c.result.kept_bytes), c.result.copies, c.result.seconds * 1e3,
                   static_cast<long long>(p.plan.peak_bytes()));
    if (p.plan.peak_bytes() > budget) return false;
    static_cast<PreparedGraph&>(e) = std::move(p);
    e.before_recompute = before;
    e.joint = c.result.graph;
    dump_graph(*e.joint, "recompute");
    about.fits = true;
    about.kept = c.result.kept_bytes;
    about.copies = c.result.copies;
    about.flops = c.result.flops;
    about.seconds = c.result.seconds - usual.seconds;
    return true;
  };
  // No plan is smaller than the kept values, cells and results together: try the policies above that bound last.
  std::vector<const PolicyCandidate*> skipped;
  for (const PolicyCandidate& c : all) {
    if (e.plan.fixed_bytes + c.result.kept_bytes > budget)
      skipped.push_back(&c);
    else if (try_it(c))
      return;
  }
  for (const PolicyCandidate* c : skipped)
    if (try_it(*c)) return;
}

}  // namespace

void rematerialise(Entry& e, int64_t budget, const CompileOptions& options) {
  std::erase_if(e.passes, [](const PassReport& r) { return std::string_view(r.name) == "recompute"; });
  PassSteps(pass_options(options, &e.passes)).run("recompute", [&] { recompute(e, budget, options); });
}

}  // namespace weft::internal
