#include "tools/plan/search.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/units.h"
#include "tools/plan/pipeline_cost.h"
#include "tools/profile/table.h"

namespace weft::planner {
namespace {

std::vector<int> powers(int64_t most, int64_t whole) {
  std::vector<int> all;
  for (int64_t n = 1; n <= most && whole % n == 0; n *= 2) all.push_back(static_cast<int>(n));
  return all;
}

std::vector<int64_t> divisors(int64_t whole) {
  std::vector<int64_t> all, large;
  for (int64_t n = 1; n * n <= whole; ++n) {
    if (whole % n != 0) continue;
    all.push_back(n);
    if (n * n != whole) large.push_back(whole / n);
  }
  all.insert(all.end(), large.rbegin(), large.rend());
  return all;
}

// Numbers of microbatches: the six largest divisors of the sequences of a rank, of at least pp.
std::vector<int64_t> microbatches_of(int64_t sequences, int pp) {
  std::vector<int64_t> counts = divisors(sequences);
  std::reverse(counts.begin(), counts.end());
  if (pp > 1) std::erase_if(counts, [pp](int64_t n) { return n < pp; });
  if (counts.size() > 6) counts.resize(6);
  if (counts.empty()) counts.push_back(sequences);
  return counts;
}

constexpr size_t kSimulated = 20;          // least number of simulated plans
constexpr int64_t kMostInTable = 1 << 20;  // stages times microbatches; beyond it, bubbles are a small part of a step

constexpr double kRounding = 1 - 1e-9;  // factor of a bound, so that the rounding of sums skips no candidate

// The choices of a mesh except the split of its data ranks over dp and fsdp, with bounds that hold for any split.
// The bounds follow from the price of full sharding: a split changes only gathers, reductions and the state.
struct Choice {
  Candidate candidate;      // zero 3 over all data ranks, gathered once
  double seconds[2] = {};   // lower bounds of all splits: gathered for each microbatch, and once
  double bytes[2] = {};     // lower bounds of memory: any split, and splits with zero 3 that gather once
  std::string uneven = {};  // the reason why sizes do not divide; empty: all divide
};

class Searcher {
 public:
  Searcher(const Workload& s, const Fixed& f, size_t keep) : s_(s), f_(f), keep_(keep) {}

  Search run() {
    if (!f_.dimensions.empty()) {
      const auto size = [&](const char* name) {
        const auto at = f_.dimensions.find(name);
        return at == f_.dimensions.end() ? 1 : at->second;
      };
      const Candidate given{.replica = size("replica"),
                            .dp = size("dp"),
                            .fsdp = size("fsdp"),
                            .tp = size("tp"),
                            .cp = size("cp"),
                            .ep = size("ep"),
                            .pp = size("pp")};
      mesh(given, choices(given));
      return finish();
    }
    const ModelShape& m = s_.model;
    const int64_t most_tp = std::min<int64_t>(m.heads, int64_t{4} * s_.machine.links.node);
    if (s_.gpus % f_.replicas != 0)
      uneven({.replica = f_.replicas}, str_cat("GPUs (", s_.gpus, ") do not divide over ", f_.replicas));
    const int gpus = s_.gpus % f_.replicas == 0 ? s_.gpus / f_.replicas : 0;  // GPUs of a replica
    for (const int64_t pp : divisors(gpus)) {
      if (pp > std::min(m.layers(), f_.most_pp)) break;
      for (const int tp : powers(most_tp, gpus / pp))
        for (const int cp : powers(16, gpus / pp / tp))
          for (const int ep : powers(std::max<int64_t>(1, m.experts()), gpus / pp / tp / cp))
            splits({.replica = f_.replicas,
                    .fsdp = static_cast<int>(gpus / pp / tp / cp / ep),
                    .tp = tp,
                    .cp = cp,
                    .ep = ep,
                    .pp = static_cast<int>(pp)});
    }
    return finish();
  }

 private:
  void uneven(const Candidate& c, const std::string& why) {
    ++out_.uneven;
    if (out_.uneven_why.empty()) out_.uneven_why = str_cat(c.text(), ": ", why);
  }

  // All splits of the data ranks of a mesh.
  void splits(const Candidate& whole) {
    const int data = whole.fsdp;
    if (s_.batch % whole.data() != 0)
      return uneven(whole, str_cat("batch (", s_.batch, ") does not divide over ", whole.data()));
    const std::vector<Choice> all = choices(whole);
    for (const int64_t fsdp : divisors(data)) {
      Candidate c = whole;
      c.fsdp = static_cast<int>(fsdp);
      c.dp = data / c.fsdp;
      // Parts of the data ranks shard over whole nodes only.
      if (c.fsdp > 1 && c.dp > 1 && (c.fsdp * c.tp * c.cp * c.ep) % s_.machine.links.node != 0) continue;
      mesh(c, all);
    }
  }

  std::vector<Choice> choices(Candidate c) const {
    std::vector<Choice> all;
    if (c.pp == 1 && !f_.schedule.empty()) return all;
    c.fsdp *= std::exchange(c.dp, 1);
    c.zero = 3;
    const int64_t sequences = std::max<int64_t>(1, s_.batch / c.data());
    for (const int64_t m : f_.microbatches ? std::vector{f_.microbatches} : microbatches_of(sequences, c.pp)) {
      c.microbatches = m;
      for (const bool recompute : {false, true}) {
        c.full_recompute = recompute;
        if (f_.recompute && *f_.recompute != recompute) continue;
        if (c.pp == 1) {
          all.push_back(choice(c));
          continue;
        }
        for (const auto& [schedule, stages] : kSchedules) {
          if (!f_.schedule.empty() && f_.schedule != schedule) continue;
          c.schedule = schedule;
          c.stages_per_rank = stages;
          const bool interleaved = c.schedule == "interleaved_1f1b" && m % c.pp != 0;
          if (!interleaved && (c.schedule != "dualpipe_v" || m >= 2 * c.pp)) {
            all.push_back(choice(c));
          } else if (!f_.schedule.empty()) {
            all.push_back({.candidate = c,
                           .uneven = str_cat("need ", interleaved ? "microbatches that pp divides"
                                                                  : "2 microbatches for each of pp")});
          }
        }
      }
    }
    return all;
  }

  Choice choice(const Candidate& c) const {
    try {
      const StepCost k = step_cost(s_, c);
      const double busy = k.compute + k.exposed_tp + k.exposed_cp + k.exposed_ep + k.exposed_pp,
                   launched = k.host > 0 ? k.step : 0;  // a step cannot be shorter than its launches
      return {.candidate = c,
              .seconds = {kRounding * std::max(busy, launched), kRounding * std::max(busy + k.bubble, launched)},
              .bytes = {kRounding * (k.memory() - k.gathered), kRounding * k.memory()}};
    } catch (const Error& e) {
      if (e.code() != Code::kInvalidArgument) throw;  // else sizes that do not divide
      return {.candidate = c, .uneven = e.what()};
    }
  }

  // Finds the fastest candidate that fits; if none fits, the smallest. The first of equal candidates wins. Prices only
  // candidates that can win by their bounds.
  void mesh(const Candidate& split, const std::vector<Choice>& choices) {
    tell();
    std::vector<int> zeros{3};
    if (split.fsdp == 1) zeros = split.dp * split.ep * split.cp > 1 ? std::vector<int>{0, 1} : std::vector<int>{0};
    struct Option {
      const Choice* choice;
      int zero;
      bool once;
      double seconds() const { return choice->seconds[once]; }
      double bytes() const { return choice->bytes[once && zero == 3]; }
    };
    std::vector<Option> options;
    const auto candidate_of = [&](const Option& o) {
      Candidate c = o.choice->candidate;
      c.dp = split.dp, c.fsdp = split.fsdp, c.zero = o.zero, c.gather_once = o.once;
      return c;
    };
    for (const int zero : zeros)
      for (const Choice& one : choices)
        for (const bool once : {true, false}) {
          if (!once && (zero != 3 || split.pp == 1)) continue;
          ++out_.candidates;
          const Option o{&one, zero, once};
          if (one.uneven.empty()) {
            options.push_back(o);
          } else {
            uneven(candidate_of(o), one.uneven);
          }
        }
    const double most = s_.usable_memory();
    std::vector<StepCost> costs(options.size());  // step 0: not priced
    const auto price = [&](size_t i) -> const StepCost& {
      if (costs[i].step == 0) costs[i] = step_cost(s_, candidate_of(options[i]));
      return costs[i];
    };
    // The least value of candidates in the order of their bounds; stops at a bound above the found value.
    const auto least = [&](auto bound, auto value, auto may) {
      std::vector<size_t> order(options.size());
      std::iota(order.begin(), order.end(), size_t{0});
      std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return bound(a) < bound(b); });
      std::optional<std::pair<double, size_t>> found;
      for (const size_t i : order) {
        if (found && bound(i) > found->first) break;
        if (may(i)) found = std::min(found.value_or(std::pair(HUGE_VAL, i)), std::pair(value(i), i));
      }
      return found;
    };
    auto found = least([&](size_t i) { return options[i].seconds(); }, [&](size_t i) { return price(i).step; },
                       [&](size_t i) { return options[i].bytes() <= most && price(i).memory() <= most; });
    const bool fits = found.has_value();
    if (!fits)
      found = least([&](size_t i) { return options[i].bytes(); }, [&](size_t i) { return price(i).memory(); },
                    [](size_t) { return true; });
    for (size_t i = 0; i < options.size(); ++i)
      if (options[i].bytes() > most || costs[i].memory() > most) ++out_.too_large;
    if (found) (fits ? fits_ : misfits_).push_back({candidate_of(options[found->second]), costs[found->second]});
  }

  // simulated_cost(). If weights are gathered once, all splits of the data ranks share one table with equal times.
  StepCost simulated(Candidate c, StepCost closed) {
    tell();
    if (!c.gather_once || s_.host_seconds > 0) return simulated_cost(s_, c);
    Candidate whole = c;
    whole.fsdp *= std::exchange(whole.dp, 1);
    whole.zero = 3;
    const auto [at, first] = bubbles_.try_emplace(whole.text());
    if (first) at->second = simulated_cost(s_, c).bubble;
    closed.step += at->second - closed.bubble;
    closed.bubble = at->second;
    return closed;
  }

  // On a terminal, prints a line a few seconds after the start and then from time to time.
  void tell() {
    const auto now = std::chrono::steady_clock::now();
    if (now < tell_at_) return;
    tell_at_ = now + std::chrono::seconds(5);
    if (::isatty(STDERR_FILENO))
      std::fprintf(stderr, "the search has seen %ld candidates on %zu meshes; Ctrl-C ends it\n", out_.candidates,
                   fits_.size() + misfits_.size());
  }

  Search finish() {
    const auto faster = [](const PricedCandidate& a, const PricedCandidate& b) { return a.cost.step < b.cost.step; };
    std::stable_sort(fits_.begin(), fits_.end(), faster);
    std::stable_sort(misfits_.begin(), misfits_.end(), [](const PricedCandidate& a, const PricedCandidate& b) {
      return a.cost.memory() < b.cost.memory();
    });
    if (fits_.empty() && !misfits_.empty()) {
      out_.least_memory = misfits_[0].cost.memory();
      out_.least_plan = misfits_[0].candidate.text();
    }
    // The best plans by closed forms are simulated. Closed forms compare the other plans with the best simulated plan.
    struct Simulated {
      PricedCandidate plan;
      StepCost closed;
    };
    std::vector<Simulated> first;
    for (size_t i = 0; i < fits_.size() && i < std::max(kSimulated, 2 * keep_); ++i) {
      first.push_back({fits_[i], fits_[i].cost});
      const Candidate& c = fits_[i].candidate;
      if (c.pp > 1 && int64_t{1} * c.pp * c.stages_per_rank * c.microbatches <= kMostInTable)
        first[i].plan.cost = simulated(c, fits_[i].cost);
    }
    std::stable_sort(first.begin(), first.end(),
                     [&](const Simulated& a, const Simulated& b) { return faster(a.plan, b.plan); });
    for (size_t i = 0; i < fits_.size(); ++i) {
      const PricedCandidate& p = i < first.size() ? first[i].plan : fits_[i];
      if (i < keep_) out_.best.push_back(p);
      if (i == 0) continue;
      const StepCost& best = i < first.size() ? first[0].plan.cost : first[0].closed;
      const double more = p.cost.step / best.step - 1;
      out_.rejected.push_back(
          {.plan = p.candidate.text(),
           .why = str_cat(profiler::fixed(100 * more, more < 0.1 ? 1 : 0), " % slower: ", why_slower(p.cost, best)),
           .step = p.cost.step,
           .memory = p.cost.memory()});
    }
    for (const PricedCandidate& p : misfits_)
      out_.rejected.push_back(
          {.plan = p.candidate.text(),
           .why = str_cat("needs ", bytes_text(p.cost.memory()), " of ", bytes_text(s_.usable_memory()), ": state ",
                          bytes_text(p.cost.state), ", gathered ", bytes_text(p.cost.gathered), ", kept ",
                          bytes_text(p.cost.kept), ", working ", bytes_text(p.cost.working)),
           .fits = false,
           .step = p.cost.step,
           .memory = p.cost.memory()});
    return std::move(out_);
  }

  const Workload& s_;
  const Fixed& f_;
  const size_t keep_;
  std::vector<PricedCandidate> fits_, misfits_;  // the best candidate of each mesh; if none fits, the smallest
  std::map<std::string, double> bubbles_;        // simulated bubbles, by the text that all splits share
  std::chrono::steady_clock::time_point tell_at_ = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  Search out_;
};

}  // namespace

Search search_plans(const Workload& setup, const Fixed& fixed, size_t keep) {
  return Searcher(setup, fixed, keep).run();
}

std::string why_slower(const StepCost& c, const StepCost& best) {
  std::vector<std::pair<double, const char*>> parts{
      {c.compute - best.compute, "compute"},
      {c.bubble - best.bubble, "bubble"},
      {c.exposed_tp - best.exposed_tp, "exposed tp"},
      {c.exposed_cp - best.exposed_cp, "exposed cp"},
      {c.exposed_ep - best.exposed_ep, "exposed ep"},
      {c.exposed_pp - best.exposed_pp, "exposed pp"},
      {c.exposed_data - best.exposed_data, "exposed gathers and reductions"},
      {c.update - best.update, "update"},
      {c.contention - best.contention, "contention"},
      {c.host - best.host, "host"}};
  std::sort(parts.rbegin(), parts.rend());
  std::string s;
  for (size_t i = 0; i < 2; ++i)
    if (parts[i].first > 0.002 * best.step)
      s += str_cat(s.empty() ? "" : ", ", parts[i].second, " +", seconds_text(parts[i].first));
  return s.empty() ? "small differences of several parts" : s;
}

int64_t batch_for(int64_t asked, int gpus) {
  const int64_t least = std::max<int64_t>(1, asked - asked / 20), most = asked + asked / 20;
  for (int64_t divisor = gpus; divisor > 1; --divisor) {
    if (gpus % divisor != 0) continue;
    const int64_t below = asked / divisor * divisor, above = below + divisor;
    if (below >= least && (asked - below <= above - asked || above > most)) return below;
    if (above <= most) return above;
  }
  return asked;
}

}  // namespace weft::planner
