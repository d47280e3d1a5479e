#include "tools/plan/search.h"

#include <algorithm>
#include <cmath>

#include "framework/base/error.h"
#include "framework/base/units.h"

namespace weft::planner {
namespace {

std::vector<int> powers(int64_t most, int64_t whole) {
  std::vector<int> all;
  for (int64_t n = 1; n <= most && whole % n == 0; n *= 2) all.push_back(static_cast<int>(n));
  return all;
}

std::vector<int> divisors(int64_t whole, int64_t most) {
  std::vector<int> all;
  for (int64_t n = 1; n <= std::min(whole, most); ++n)
    if (whole % n == 0) all.push_back(static_cast<int>(n));
  return all;
}

// Divisors of the sequences of a rank: all small numbers of them, and those with few sequences each.
std::vector<int64_t> microbatches_of(int64_t sequences, int pp) {
  std::vector<int64_t> counts, small;  // falling
  for (int64_t n = 1; n * n <= sequences; ++n) {
    if (sequences % n != 0) continue;
    counts.push_back(sequences / n);
    if (n * n != sequences) small.push_back(n);
  }
  counts.insert(counts.end(), small.rbegin(), small.rend());
  if (pp > 1) std::erase_if(counts, [pp](int64_t n) { return n < pp; });
  if (counts.size() > 6) counts.resize(6);
  if (counts.empty()) counts.push_back(sequences);
  return counts;
}

constexpr size_t kSimulated = 20;          // plans, at least
constexpr int64_t kMostInTable = 1 << 20;  // stages times microbatches: with more, bubbles are a small part of a step

class Searcher {
 public:
  Searcher(const Workload& s, const Fixed& f, size_t keep) : s_(s), f_(f), keep_(keep) {}

  Search run() {
    if (!f_.dimensions.empty()) {
      const auto size = [&](const char* name) { return f_.dimensions.at(name); };
      mesh({.dp = size("dp"),
            .fsdp = size("fsdp"),
            .tp = size("tp"),
            .cp = size("cp"),
            .ep = size("ep"),
            .pp = size("pp")});
      return finish();
    }
    const ModelShape& m = s_.model;
    const int64_t most_tp = std::min<int64_t>(m.heads, int64_t{4} * s_.machine.links.node);
    for (int pp : divisors(s_.gpus, std::min<int64_t>(m.layers, 64)))
      for (int tp : powers(most_tp, s_.gpus / pp))
        for (int cp : powers(16, s_.gpus / pp / tp))
          for (int ep : powers(m.experts ? m.experts : 1, s_.gpus / pp / tp / cp)) {
            const int data = s_.gpus / pp / tp / cp / ep;
            if (s_.batch % (int64_t{1} * data * ep) != 0) {
              uneven({.fsdp = data, .tp = tp, .cp = cp, .ep = ep, .pp = pp},
                     str_cat("batch (", s_.batch, ") does not divide over ", data * ep));
              continue;
            }
            for (int fsdp : divisors(data, data)) {
              // Parts of the data ranks shard over whole nodes only.
              if (fsdp > 1 && fsdp < data && (fsdp * tp * cp * ep) % s_.machine.links.node != 0) continue;
              mesh({.dp = data / fsdp, .fsdp = fsdp, .tp = tp, .cp = cp, .ep = ep, .pp = pp});
            }
          }
    return finish();
  }

 private:
  void uneven(const Candidate& c, const std::string& why) {
    ++out_.uneven;
    if (out_.uneven_why.empty()) out_.uneven_why = str_cat(c.text(), ": ", why);
  }

  void mesh(Candidate c) {
    if (c.pp == 1 && !f_.schedule.empty()) return;
    std::vector<int> zeros{3};
    if (c.fsdp == 1) zeros = c.dp * c.ep * c.cp > 1 ? std::vector<int>{0, 1} : std::vector<int>{0};
    std::optional<Planned> fastest, smallest;
    for (int zero : zeros) {
      c.zero = zero;
      const int64_t sequences = std::max<int64_t>(1, s_.batch / c.data());
      for (int64_t m : f_.microbatches ? std::vector{f_.microbatches} : microbatches_of(sequences, c.pp)) {
        c.microbatches = m;
        for (bool recompute : {false, true}) {
          c.full_recompute = recompute;
          if (f_.recompute && *f_.recompute != recompute) continue;
          schedules(c, fastest, smallest);
        }
      }
    }
    if (fastest) {
      fits_.push_back(*fastest);
    } else if (smallest) {
      misfits_.push_back(*smallest);
    }
  }

  void schedules(Candidate c, std::optional<Planned>& fastest, std::optional<Planned>& smallest) {
    if (c.pp == 1) return add(c, fastest, smallest);
    static const std::pair<const char*, int> kAll[] = {
        {"gpipe", 1}, {"1f1b", 1}, {"interleaved_1f1b", 2}, {"interleaved_1f1b", 4}, {"zb_h1", 1},
        {"zb_2p", 1}, {"zb_v", 2}, {"dualpipe_v", 2}};
    for (const auto& [schedule, stages] : kAll) {
      if (!f_.schedule.empty() && f_.schedule != schedule) continue;
      c.schedule = schedule;
      c.stages_per_rank = stages;
      const bool interleaved = c.schedule == "interleaved_1f1b" && c.microbatches % c.pp != 0;
      if (interleaved || (c.schedule == "dualpipe_v" && c.microbatches < 2 * c.pp)) {
        if (!f_.schedule.empty())
          uneven(c, str_cat("need ", interleaved ? "microbatches that pp divides" : "2 microbatches for each of pp"));
        continue;
      }
      for (bool once : {true, false}) {
        c.gather_once = once;
        if (!once && c.zero != 3) continue;
        add(c, fastest, smallest);
      }
    }
  }

  void add(const Candidate& c, std::optional<Planned>& fastest, std::optional<Planned>& smallest) {
    ++out_.candidates;
    StepCost cost;
    try {
      cost = step_cost(s_, c);
    } catch (const Error& e) {
      if (e.code() != Code::kInvalidArgument) throw;  // else sizes that do not divide
      return uneven(c, e.what());
    }
    if (out_.least_memory == 0 || cost.memory() < out_.least_memory) {
      out_.least_memory = cost.memory();
      out_.least_plan = c.text();
    }
    const bool fits = cost.memory() <= s_.usable_memory();
    if (!fits) ++out_.too_large;
    if (fits && (!fastest || cost.step < fastest->cost.step)) fastest = {c, cost};
    if (!smallest || cost.memory() < smallest->cost.memory()) smallest = {c, cost};
  }

  Search finish() {
    const auto faster = [](const Planned& a, const Planned& b) { return a.cost.step < b.cost.step; };
    std::stable_sort(fits_.begin(), fits_.end(), faster);
    std::stable_sort(misfits_.begin(), misfits_.end(),
                     [](const Planned& a, const Planned& b) { return a.cost.memory() < b.cost.memory(); });
    // The best ones by closed forms are simulated. Others are compared by closed forms with what is the best then.
    struct Simulated {
      Planned plan;
      StepCost closed;
    };
    std::vector<Simulated> first;
    for (size_t i = 0; i < fits_.size() && i < std::max(kSimulated, 2 * keep_); ++i) {
      first.push_back({fits_[i], fits_[i].cost});
      const Candidate& c = fits_[i].candidate;
      if (c.pp > 1 && int64_t{1} * c.pp * c.stages_per_rank * c.microbatches <= kMostInTable)
        first[i].plan.cost = simulated_cost(s_, c);
    }
    std::stable_sort(first.begin(), first.end(),
                     [&](const Simulated& a, const Simulated& b) { return faster(a.plan, b.plan); });
    for (size_t i = 0; i < fits_.size(); ++i) {
      const Planned& p = i < first.size() ? first[i].plan : fits_[i];
      if (i < keep_) out_.best.push_back(p);
      if (i == 0) continue;
      const StepCost& best = i < first.size() ? first[0].plan.cost : first[0].closed;
      const double more = p.cost.step / best.step - 1;
      char percent[32];
      std::snprintf(percent, sizeof percent, "%.*f %% slower", more < 0.1 ? 1 : 0, 100 * more);
      out_.rejected.push_back({.plan = p.candidate.text(),
                               .why = str_cat(percent, ": ", why_slower(p.cost, best)),
                               .step = p.cost.step,
                               .memory = p.cost.memory()});
    }
    for (const Planned& p : misfits_)
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
  std::vector<Planned> fits_, misfits_;  // the best of each mesh; of those that do not fit, the smallest
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
