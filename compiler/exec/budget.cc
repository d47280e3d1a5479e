// Keeping to a memory budget: policies of rematerialisation are listed without looking at the budget, in order of the
// time they cost, and the first whose plan fits is taken. Hence a smaller budget never gets a larger peak.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "compiler/cost/keep_cost.h"
#include "compiler/cost/peak_estimate.h"
#include "compiler/exec/entry.h"
#include "compiler/passes/pipeline.h"
#include "compiler/passes/recompute.h"
#include "framework/base/switches.h"

namespace weft::internal {
namespace {

struct Candidate {
  RecomputePolicy policy;
  RecomputeResult result;
};

// Prices of a stored byte from "only what is nearly free" to "whatever it takes", for the part of the step up to some
// narrow place: its values live longest and are computed again last, when the rest is gone. The rest has a lower price
// or none: what the backward part reads first is better kept. Then fewer narrow places.
std::vector<RecomputePolicy> policies(const std::vector<double>& narrow) {
  constexpr double kFree = 0.25, kPrices[] = {kFree, 1, 2, 4, 8, 128};
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

// Each with its cut, cheapest first, without those that cost more and by all appearance need as much memory.
std::vector<Candidate> candidates(const Graph& g, Rematerialisation& about) {
  std::vector<Candidate> all;
  const KeepCosts costs(g, RecomputePolicy().small);
  for (const RecomputePolicy& p : policies(recompute_by(g, {.expensive = true, .span = 1}, costs).narrow))
    all.push_back({p, recompute_by(g, p, costs)});
  about.policies = static_cast<int32_t>(all.size());
  std::stable_sort(all.begin(), all.end(),
                   [](const Candidate& a, const Candidate& b) { return a.result.seconds < b.result.seconds; });
  // Estimates err by a few percent: of those about as good as the best a few are tried.
  constexpr double kSurely = 0.98, kPerhaps = 1.03;
  constexpr int kTries = 3;
  double least = INFINITY;
  int tries = 0;
  std::vector<Candidate> kept;
  for (Candidate& c : all) {
    if (!c.result.graph) continue;
    const bool seen = std::any_of(kept.begin(), kept.end(), [&](const Candidate& k) {
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

}  // namespace

size_t recompute_row() {
  const std::span<const Pass> all = pipeline();
  for (size_t i = 0; i < all.size(); ++i)
    if (std::string_view(all[i].name) == "recompute") return i;
  return all.size();
}

void rematerialise(Entry& e, int64_t budget, const CompileOptions& options) {
  const size_t row = recompute_row();
  for (const std::string& off : options.disable)
    if (off == "recompute" || off == "all") return;
  for (const PassReport& r : e.passes)
    if (std::string_view(r.name) == "recompute" && r.disabled) return;
  const std::span<const Pass> after = pipeline().subspan(std::min(row + 1, pipeline().size()));

  Rematerialisation& about = e.remat;
  about = {.tried = true, .peak_before = e.plan.peak_bytes(), .least_peak = e.plan.peak_bytes()};
  const RecomputeResult usual = recompute_by(*e.before_recompute, {});
  about.kept_before = usual.kept_bytes;
  std::vector<Candidate> all = candidates(*e.before_recompute, about);
  auto try_it = [&](const Candidate& c) {
    std::vector<PassReport> reports;
    Ref<Graph> joint =
        run_passes(c.result.graph, after, {.disable = options.disable, .known = all_passes(), .report = &reports});
    Planned p = plan_joint(*joint, e.key.layouts, options, e.low_memory, about.least_peak);
    ++about.plans;
    about.least_peak = std::min(about.least_peak, p.plan.peak_bytes());
    if (switch_int("WEFT_DEBUG") >= 2)
      std::fprintf(stderr,
                   "weft: budget: byte %g, share %g, then %g, span %d: %lld kept, %d copies, %.3f ms, peak %lld\n",
                   c.policy.stored_byte, c.policy.share, c.policy.late_stored_byte, c.policy.span,
                   static_cast<long long>(c.result.kept_bytes), c.result.copies, c.result.seconds * 1e3,
                   static_cast<long long>(p.plan.peak_bytes()));
    if (p.plan.peak_bytes() > budget) return false;
    static_cast<Planned&>(e) = std::move(p);
    e.joint = joint;
    about.fits = true;
    about.kept = c.result.kept_bytes;
    about.copies = c.result.copies;
    about.flops = c.result.flops;
    about.seconds = c.result.seconds - usual.seconds;
    e.passes.resize(std::min(row, e.passes.size()));
    e.passes.push_back({.name = "recompute",
                        .nodes_before = e.before_recompute->size(),
                        .nodes_after = c.result.graph->size(),
                        .changed = true});
    e.passes.insert(e.passes.end(), reports.begin(), reports.end());
    return true;
  };
  // What is kept lives beside cells and results: a plan cannot be smaller than that.
  std::vector<const Candidate*> skipped;
  for (const Candidate& c : all) {
    if (e.plan.fixed_bytes + c.result.kept_bytes > budget)
      skipped.push_back(&c);
    else if (try_it(c))
      return;
  }
  for (const Candidate* c : skipped)
    if (try_it(*c)) return;
}

}  // namespace weft::internal
