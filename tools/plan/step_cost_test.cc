// The closed forms against captured and partitioned graphs, and published relative effects.
#include "tools/plan/step_cost.h"

#include <gtest/gtest.h>

#include "distributed/launch/compile.h"
#include "tools/plan/search.h"
#include "tools/step/model_step.h"

namespace weft::planner {
namespace {

Workload small(const std::string& model, int gpus, int64_t batch, int64_t sequence) {
  return {.model = preset_shape(model),
          .machine = machine_preset("cpu"),
          .gpus = gpus,
          .batch = batch,
          .sequence = sequence,
          .activations = kFloat32,
          .products = kFloat32};
}

// shape_test.cc compares training_flops() with the products of captured graphs.
TEST(StepCost, HasTheProductsOfTheGraph) {
  for (const char* model : {"gpt_tiny", "llama_tiny", "moe_tiny", "moe_small", "llama-8b", "mixtral-8x7b"}) {
    const Workload w = small(model, 1, 4, 64);
    EXPECT_NEAR(product_flops(w, {}) / (w.model.training_flops(64) * w.tokens()), 1, 1e-9) << model;
  }
  // Ranks of tp and cp have their shares.
  Workload w = small("llama-8b", 8, 4, 512);
  const double whole = product_flops({w.model, w.machine, 1, 4, 512, kFloat32, kFloat32}, {});
  EXPECT_NEAR(product_flops(w, {.tp = 8}) * 8 / whole, 1, 1e-9);
  EXPECT_NEAR(product_flops(w, {.tp = 2, .cp = 4}) * 8 / whole, 1, 1e-9);
  EXPECT_NEAR(product_flops(w, {.dp = 2, .tp = 4}) * 8 / whole, 1, 1e-9);
}

// Bytes of the collectives of a partitioned step.
struct Planned {
  double gathered = 0, scattered = 0, reduced = 0;
};
Planned planned(const std::string& mesh, const std::string& axis, int64_t batch) {
  tools::ModelStep step(
      {.model = "llama", .config = "llama_shakespeare", .batch_size = batch, .seq_len = 128, .mesh = mesh},
      Device::meta());
  step.prepare();
  Planned p;
  for (const dist::CollectiveSum& s : step.compiled().plan().totals()) {
    if (s.axes != axis) continue;
    if (s.kind == Collective::kAllGather) p.gathered += static_cast<double>(s.bytes);
    if (s.kind == Collective::kReduceScatter) p.scattered += static_cast<double>(s.bytes);
    if (s.kind == Collective::kAllReduce) p.reduced += static_cast<double>(s.bytes);
  }
  return p;
}

TEST(StepCost, HasTheCollectivesOfThePartitioner) {
  const Workload w = small("llama_shakespeare", 4, 8, 128);
  const CollectiveBytes fsdp = collective_bytes(w, {.fsdp = 4, .zero = 3}), dp = collective_bytes(w, {.dp = 4}),
                        tp = collective_bytes(w, {.dp = 2, .tp = 2});
  const Planned by_fsdp = planned("fsdp4", "fsdp", 8), by_dp = planned("dp4", "dp", 8),
                by_tp = planned("dp2,tp2", "tp", 8);
  EXPECT_NEAR(by_fsdp.gathered / fsdp.data_gathered, 1, 0.03);
  EXPECT_NEAR(by_fsdp.scattered / fsdp.data_reduced, 1, 0.03);
  EXPECT_NEAR(by_dp.reduced / dp.data_reduced, 1, 0.03);
  EXPECT_NEAR(by_tp.gathered / tp.tp_gathered, 1, 0.1);
  EXPECT_NEAR(by_tp.scattered / tp.tp_scattered, 1, 0.1);
}

// torchtitan, 512 H100 of 500 W, December 2024: relative effects.
Workload titan(const char* model, int gpus, int64_t batch, int64_t sequence = 8192) {
  Workload w{.model = preset_shape(model),
             .machine = machine_preset("h100-sxm"),
             .gpus = gpus,
             .batch = batch,
             .sequence = sequence};
  w.machine.bytes = 2.2e12;
  w.machine.memory = 96e9;
  return w;
}
double speed(const Workload& w, const Candidate& c) { return simulated_cost(w, c).tokens_per_gpu_second(w); }

TEST(StepCost, V32InterleavingOf405B) {
  const Workload w = titan("llama-405b", 512, 256);
  Candidate c{.fsdp = 8, .tp = 8, .pp = 8, .zero = 3, .microbatches = 8, .full_recompute = true};
  const double plain = speed(w, c);
  c.schedule = "interleaved_1f1b";
  c.stages_per_rank = 2;
  EXPECT_NEAR(speed(w, c) / plain / 1.28, 1, 0.1);
}

TEST(StepCost, V32AsyncTensorParallelismOf70B) {
  Workload w = titan("llama-70b", 256, 512);
  const Candidate c{.fsdp = 32, .tp = 8, .zero = 3, .microbatches = 16, .full_recompute = true};
  const double with = speed(w, c);
  w.async_tp = false;
  EXPECT_NEAR(with / speed(w, c) / 1.09, 1, 0.1);
}

TEST(StepCost, WeakScalingAndFp8Of8B) {
  const Candidate c8{.fsdp = 8, .zero = 3}, c128{.fsdp = 128, .zero = 3};
  Workload w8 = titan("llama-8b", 8, 16), w128 = titan("llama-8b", 128, 256);
  EXPECT_NEAR(speed(w128, c128) / speed(w8, c8) / (6514. / 6667), 1, 0.1);
  const double bf16 = speed(w8, c8);
  w8.products = kFloat8E4M3;
  EXPECT_NEAR(speed(w8, c8) / bf16 / (8532. / 6667), 1, 0.1);
}

// Megatron's published rows: full recomputation costs about 30 %.
TEST(StepCost, FullRecomputation) {
  const Workload w = titan("llama-8b", 8, 16);
  const double kept = step_cost(w, {.fsdp = 8, .zero = 3}).compute,
               again = step_cost(w, {.fsdp = 8, .zero = 3, .full_recompute = true}).compute;
  EXPECT_NEAR(again / kept, 1.3, 0.05);
}

TEST(Search, FindsPlansThatFit) {
  const Workload w = titan("llama-70b", 512, 512);
  const Search s = search_plans(w, {}, 3);
  ASSERT_EQ(s.best.size(), 3u);
  for (const auto& p : s.best) EXPECT_LE(p.cost.memory(), w.usable_memory());
  EXPECT_LE(s.best[0].cost.step, s.best[1].cost.step);
  EXPECT_GT(s.too_large, 0);
  // Eight GPUs cannot hold its state.
  const Search none = search_plans(titan("llama-70b", 8, 8), {}, 3);
  EXPECT_TRUE(none.best.empty());
  EXPECT_GT(none.least_memory, w.usable_memory());
  EXPECT_EQ(batch_for(488, 4000), 500);
  EXPECT_EQ(batch_for(488, 512), 512);
}

}  // namespace
}  // namespace weft::planner
