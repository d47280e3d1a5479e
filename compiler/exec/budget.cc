// Keeping to a memory budget: policies of rematerialisation are listed without looking at the budget, in order of the
// time they cost, and the first whose plan fits is taken. Hence a smaller budget never gets a larger peak.
#include <algorithm>
#include <cstdio>

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

// Prices of a stored byte from "only what is nearly free" to "whatever it takes", each first for the early part of the
// step: its values live longest and are computed again last, when the rest is gone. Then fewer narrow places.
std::vector<RecomputePolicy> policies(int32_t narrow) {
  constexpr double kPrices[] = {0.25, 1, 2, 4, 8, 16, 32, 64, 128};
  std::vector<RecomputePolicy> all = {{}};
  for (size_t k = 1; k < std::size(kPrices); ++k)
    for (double share : {0.25, 0.5, 0.75, 1.})
      all.push_back({.stored_byte = kPrices[k], .dear = true, .span = 1, .share = share, .late_stored_byte = kPrices[k - 1]});
  for (int32_t span = 2; span < std::min(narrow, 64); span += std::max(1, span / 4))
    all.push_back({.stored_byte = 128, .dear = true, .span = span, .share = 1});
  return all;
}

// Each with its cut, cheapest first, without those that cost more and keep as much.
std::vector<Candidate> candidates(const Graph& g, Rematerialisation& about) {
  std::vector<Candidate> all;
  const int32_t narrow = recompute_by(g, {.dear = true, .span = 1}).narrow;
  for (const RecomputePolicy& p : policies(narrow)) all.push_back({p, recompute_by(g, p)});
  about.policies = static_cast<int32_t>(all.size());
  std::stable_sort(all.begin(), all.end(),
                   [](const Candidate& a, const Candidate& b) { return a.result.seconds < b.result.seconds; });
  std::vector<Candidate> kept;
  for (Candidate& c : all) {
    if (!c.result.graph) continue;
    bool seen = false;
    for (const Candidate& k : kept)
      seen |= k.result.kept_bytes == c.result.kept_bytes && k.result.copies == c.result.copies;
    if (!seen) kept.push_back(std::move(c));
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
    Ref<Graph> joint = run_passes(c.result.graph, after, {.disable = options.disable, .known = all_passes(), .report = &reports});
    Planned p = plan_joint(*joint, e.key.layouts, options);
    ++about.plans;
    about.least_peak = std::min(about.least_peak, p.plan.peak_bytes());
    if (switch_int("WEFT_DEBUG") >= 2)
      std::fprintf(stderr, "weft: budget: byte %g, share %g, span %d: %lld kept, %d copies, %.3f ms, peak %lld\n",
                   c.policy.stored_byte, c.policy.share, c.policy.span, static_cast<long long>(c.result.kept_bytes),
                   c.result.copies, c.result.seconds * 1e3, static_cast<long long>(p.plan.peak_bytes()));
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
