#include "tools/plan/search.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <set>
#include <string>

#include "tools/plan/pipeline_cost.h"
#include "tools/plan/testing/on_h100.h"

namespace weft::planner {
namespace {

// A small model on a few GPUs, with enough or too little memory.
Workload random_workload(std::mt19937_64& random) {
  const auto one_of = [&](const std::vector<int>& all) { return all[random() % all.size()]; };
  Workload w = on_h100("llama-8b", one_of({1, 2, 6, 8, 12, 16, 24, 32, 48}), 0, one_of({128, 192, 1024}));
  const int heads = one_of({4, 6, 8, 12}), kv_heads = heads / one_of({1, 2});
  nn::ConfigMap fields{{"heads", std::to_string(heads)},
                       {"kv_heads", std::to_string(kv_heads)},
                       {"dim", std::to_string(64 * heads)},
                       {"ffn", std::to_string(one_of({96, 512, 1000}))},
                       {"layers", std::to_string(one_of({2, 3, 5, 8, 12}))},
                       {"vocab", std::to_string(one_of({256, 50000}))},
                       {"tied", one_of({0, 1}) ? "true" : "false"}};
  const bool moe = one_of({0, 1});
  if (moe) {
    fields["experts"] = std::to_string(one_of({2, 4, 8}));
    fields["dense_layers"] = std::to_string(one_of({0, 1}));
    fields["dense_ffn"] = fields["ffn"];
  }
  w.model = preset_shape(moe ? "mixtral-8x7b" : "llama-8b", fields);
  w.batch = int64_t{1} * one_of({1, 2, 3}) * one_of({4, 8, 48, 128, 96});
  w.machine.links.node = one_of({4, 8});
  w.machine.memory = 1e6 * one_of({20, 100, 400, 80000});
  w.host_seconds = 1e-6 * one_of({0, 0, 3, 20});
  w.async_tp = one_of({0, 1});
  return w;
}

// A priced plan; infinite if there is none.
struct Found {
  std::string plan;
  double step = std::numeric_limits<double>::infinity(), memory = std::numeric_limits<double>::infinity();
};

// Prices all candidates of a mesh one by one and finds the fastest that fits, or the smallest.
struct Exhaustive {
  const Workload& w;
  int replicas = 1;
  int64_t candidates = 0, uneven = 0;
  std::set<std::pair<std::string, double>> plans = {};  // plan and memory
  Found fastest = {}, smallest = {};

  void price(const Candidate& c) {
    ++candidates;
    try {
      const StepCost k = step_cost(w, c);
      const Found found{c.text(), k.step, k.memory()};
      if (k.memory() <= w.usable_memory() && k.step < fastest.step) fastest = found;
      if (k.memory() < smallest.memory) smallest = found;
    } catch (const Error&) {
      ++uneven;
    }
  }

  void mesh(Candidate c) {
    fastest = smallest = {};
    const int64_t sequences = w.batch / c.data();
    for (c.zero = c.fsdp > 1 ? 3 : 0; c.zero < 4; c.zero += 1) {
      if (c.zero == 2 || (c.zero == 1 && c.dp * c.ep * c.cp == 1) || (c.zero == 3 && c.fsdp == 1)) continue;
      std::vector<int64_t> counts;
      for (int64_t m = sequences; m >= (c.pp > 1 ? c.pp : 1) && counts.size() < 6; --m)
        if (sequences % m == 0) counts.push_back(m);
      if (counts.empty()) counts.push_back(sequences);
      for (const int64_t m : counts)
        for (const bool recompute : {false, true}) {
          c.microbatches = m;
          c.full_recompute = recompute;
          if (c.pp == 1) {
            price(c);
            continue;
          }
          for (const auto& [schedule, stages] : kSchedules) {
            c.schedule = schedule;
            c.stages_per_rank = stages;
            if (c.schedule == "interleaved_1f1b" && m % c.pp != 0) continue;
            if (c.schedule == "dualpipe_v" && m < 2 * c.pp) continue;
            for (const bool once : {true, false}) {
              c.gather_once = once;
              if (once || c.zero == 3) price(c);
            }
          }
        }
    }
    const Found& best = fastest.plan.empty() ? smallest : fastest;
    if (!best.plan.empty()) plans.emplace(best.plan, best.memory);
  }

  void run() {
    const int n = w.gpus / replicas;
    for (int pp = 1; pp <= std::min<int64_t>(n, w.model.layers()); ++pp)
      for (int tp = 1; tp <= std::min<int64_t>(w.model.heads, 4 * w.machine.links.node); tp *= 2)
        for (int cp = 1; cp <= 16; cp *= 2)
          for (int ep = 1; ep <= std::max<int64_t>(1, w.model.experts()); ep *= 2) {
            if (n % (pp * tp * cp * ep) != 0) continue;
            const int data = n / (pp * tp * cp * ep);
            if (w.batch % (replicas * data * ep) != 0) {
              ++uneven;
              continue;
            }
            for (int fsdp = 1; fsdp <= data; ++fsdp)
              if (data % fsdp == 0 && (fsdp == 1 || fsdp == data || fsdp * tp * cp * ep % w.machine.links.node == 0))
                mesh({.replica = replicas, .dp = data / fsdp, .fsdp = fsdp, .tp = tp, .cp = cp, .ep = ep, .pp = pp});
          }
  }
};

// Bounds skip most candidates, but never the best candidate of a mesh.
TEST(Search, FindsWhatAnExhaustiveSearchFinds) {
  int64_t fitting = 0, misfits = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const Workload w = random_workload(random);
    const int replicas = seed % 4 == 0 && w.gpus % 2 == 0 ? 2 : 1;
    Exhaustive all{w, replicas};
    all.run();
    const Search s = search_plans(w, {.replicas = replicas}, 1);
    std::set<std::pair<std::string, double>> plans;
    for (const PricedCandidate& p : s.best) plans.emplace(p.candidate.text(), p.cost.memory());
    for (const Rejected& r : s.rejected) {
      plans.emplace(r.plan, r.memory);
      ++(r.fits ? fitting : misfits);
    }
    EXPECT_EQ(plans, all.plans);
    EXPECT_EQ(s.candidates, all.candidates);
    EXPECT_EQ(s.uneven, all.uneven);
  }
  EXPECT_GT(fitting, 100);
  EXPECT_GT(misfits, 100);
}

// Splits of the data ranks share one simulation of their table.
TEST(Search, TimesOfTheBestAreSimulated) {
  const Workload w = on_h100("llama-70b", 512, 512);
  const Search s = search_plans(w, {.schedule = "zb_h1"}, 20);
  ASSERT_EQ(s.best.size(), 20u);
  for (const PricedCandidate& p : s.best) {
    const StepCost whole = simulated_cost(w, p.candidate);
    EXPECT_NEAR(p.cost.step, whole.step, 1e-12 * whole.step) << p.candidate.text();
    EXPECT_EQ(p.cost.bubble, whole.bubble) << p.candidate.text();
  }
}

TEST(Search, FindsPlansThatFit) {
  const Workload w = on_h100("llama-70b", 512, 512);
  const Search s = search_plans(w, {}, 3);
  ASSERT_EQ(s.best.size(), 3u);
  for (const auto& p : s.best) EXPECT_LE(p.cost.memory(), w.usable_memory());
  EXPECT_LE(s.best[0].cost.step, s.best[1].cost.step);
  EXPECT_GT(s.too_large, 0);
  // The state exceeds the memory of eight GPUs.
  const Search none = search_plans(on_h100("llama-70b", 8, 8), {}, 3);
  EXPECT_TRUE(none.best.empty());
  EXPECT_GT(none.least_memory, w.usable_memory());
}

// The largest common divisor with the GPUs within 5 %, then the nearest; at once for any size.
TEST(Search, BatchesThatSuitTheGpus) {
  EXPECT_EQ(batch_for(488, 4000), 500);
  EXPECT_EQ(batch_for(488, 512), 512);
  EXPECT_EQ(batch_for(101, 7), 98);
  EXPECT_EQ(batch_for(3, 64), 3);
  EXPECT_EQ(batch_for(1'000'000'000'000'003, 8), 1'000'000'000'000'000);
  Workload w = on_h100("llama-8b", 8, 999'999'937);  // a prime
  const Search s = search_plans(w, {}, 1);
  EXPECT_GT(s.uneven, 0);
  EXPECT_EQ(search_plans(w, {.dimensions = {{"fsdp", 8}}}).uneven_why,
            "fsdp8 m124999992: batch (999999937) does not divide over 8");
}

// Simulated times are compared with simulated times and closed forms with closed forms, and the best plan is the same
// for any number of kept plans.
TEST(Search, TheBestIsTheFastest) {
  const Workload w = on_h100("llama-405b", 512, 256);
  const Search one = search_plans(w, {}, 1), ten = search_plans(w, {}, 10);
  EXPECT_EQ(one.best[0].candidate.text(), ten.best[0].candidate.text());
  EXPECT_EQ(one.best[0].cost.step, ten.best[0].cost.step);
  for (const Rejected& r : ten.rejected) EXPECT_FALSE(r.why.starts_with("-")) << r.plan << ": " << r.why;
}

TEST(Search, ProposesReplicasOnlyIfAskedFor) {
  const Workload w = on_h100("llama-8b", 32, 64);
  const auto replicas_of = [&](const Fixed& fixed) {
    std::set<int> all;
    for (const PricedCandidate& p : search_plans(w, fixed, 20).best) all.insert(p.candidate.replica);
    return all;
  };
  EXPECT_EQ(replicas_of({}), std::set<int>{1});
  EXPECT_EQ(replicas_of({.replicas = 4}), std::set<int>{4});
  EXPECT_EQ(replicas_of({.dimensions = {{"replica", 2}, {"fsdp", 16}}}), std::set<int>{2});
  const Search odd = search_plans(w, {.replicas = 3});
  EXPECT_TRUE(odd.best.empty());
  EXPECT_EQ(odd.uneven_why, "replica3: GPUs (32) do not divide over 3");
}

TEST(Search, AGivenScheduleHasMeshesWithPpAlone) {
  const Search s = search_plans(on_h100("llama-8b", 8, 64), {.schedule = "zb_v"}, 5);
  ASSERT_FALSE(s.best.empty());
  for (const auto& p : s.best) EXPECT_EQ(p.candidate.schedule, "zb_v") << p.candidate.text();
}

}  // namespace
}  // namespace weft::planner
