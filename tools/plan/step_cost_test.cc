// The closed forms against captured and partitioned graphs; published_test.cc has published runs.
#include "tools/plan/step_cost.h"

#include <gtest/gtest.h>

#include "compiler/cost/collective_seconds.h"
#include "distributed/launch/compile.h"
#include "tools/plan/testing/on_h100.h"
#include "tools/plan/testing/step_sums.h"
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
Planned planned(const std::string& mesh, const std::string& axis, int64_t batch, int64_t microbatches = 1,
                const char* dtype = "f32") {
  tools::ModelStep step({.model = "llama",
                         .config = "llama_shakespeare",
                         .batch_size = batch,
                         .seq_len = 128,
                         .dtype = dtype,
                         .mesh = mesh,
                         .microbatches = microbatches},
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

// Gradients are reduced in f32, with fsdp once for each microbatch.
TEST(StepCost, ReducesGradientsOf16BitStepsInF32) {
  Workload w = small("llama_shakespeare", 4, 8, 128);
  w.activations = w.products = kBFloat16;
  for (int64_t m : {1, 2}) {
    const CollectiveBytes fsdp = collective_bytes(w, {.fsdp = 4, .zero = 3, .microbatches = m}),
                          dp = collective_bytes(w, {.dp = 4, .microbatches = m});
    const Planned by_fsdp = planned("fsdp4", "fsdp", 8, m, "bf16"), by_dp = planned("dp4", "dp", 8, m, "bf16");
    EXPECT_NEAR(by_fsdp.gathered / fsdp.data_gathered, 1, 0.03) << m;
    EXPECT_NEAR(by_fsdp.scattered / (static_cast<double>(m) * fsdp.data_reduced), 1, 0.03) << m;
    EXPECT_NEAR(by_dp.reduced / dp.data_reduced, 1, 0.03) << m;
  }
}

// Reduced shards cross between replicas, once a step.
TEST(StepCost, SumsOverReplicasAreThoseOfThePartitioner) {
  const Workload w = small("llama_shakespeare", 4, 8, 128);
  for (int64_t m : {1, 2}) {
    const CollectiveBytes fsdp = collective_bytes(w, {.replica = 2, .fsdp = 2, .zero = 3, .microbatches = m}),
                          dp = collective_bytes(w, {.replica = 2, .dp = 2, .microbatches = m});
    EXPECT_NEAR(planned("replica2,fsdp2", "replica", 8, m).reduced / fsdp.over_replicas, 1, 0.03) << m;
    EXPECT_NEAR(planned("replica2,dp2", "replica", 8, m).reduced / dp.over_replicas, 1, 0.03) << m;
    EXPECT_NEAR(dp.over_replicas / fsdp.over_replicas, 2, 1e-9);
  }
  EXPECT_EQ(collective_bytes(w, {.fsdp = 4, .zero = 3}).over_replicas, 0);
}

// Over one network, replicas cost as much as dp. A link between them has its own price: 2 (R - 1) / R of the bytes, and
// 2 log2(R) messages for each layer, the embedding and the head.
TEST(StepCost, PricesTheLinkBetweenReplicas) {
  Workload w = on_h100("llama-8b", 32, 64);
  const StepCost dp = step_cost(w, {.dp = 2, .fsdp = 16, .zero = 3}),
                 replica = step_cost(w, {.replica = 2, .fsdp = 16, .zero = 3});
  EXPECT_NEAR(replica.step, dp.step, 1e-12);
  EXPECT_EQ(replica.memory(), dp.memory());
  EXPECT_EQ(dp.replica_sums, 0);
  EXPECT_LT(replica.replica_sums, replica.communication);
  w.between_replicas = w.machine;
  w.between_replicas->links = {.node = 1, .outer_hop = 1e-3, .outer_bus = 1e9};
  const double bytes = 4. * static_cast<double>(w.model.parameters()) / 16, messages = 2 * (w.model.layers() + 2.);
  for (int64_t m : {1, 2}) {
    const StepCost slow = step_cost(w, {.replica = 2, .fsdp = 16, .zero = 3, .microbatches = m});
    EXPECT_NEAR(slow.replica_sums / (bytes / 1e9 + messages * 1e-3), 1, 1e-3) << m;
    EXPECT_GT(slow.step, replica.step);
    EXPECT_GE(slow.exposed_data, slow.replica_sums - slow.compute);
  }
  const StepCost stages = step_cost(w, {.replica = 2, .fsdp = 4, .pp = 4, .zero = 3, .microbatches = 4});
  EXPECT_NEAR(stages.replica_sums / (bytes / 1e9), 1, 0.3);  // about a fourth of the layers, on a fourth of the ranks
}

// In the partitioned graph's estimate, a rank waits for a part of all communication.
TEST(StepCost, AnEstimateExposesAPartOfTheCommunication) {
  for (const char* mesh : {"dp2", "fsdp2", "dp2,tp2"})
    for (int64_t m : {1, 2, 4}) {
      tools::ModelStep step({.model = "llama",
                             .config = "llama_shakespeare",
                             .batch_size = 8,
                             .seq_len = 128,
                             .dtype = "bf16",
                             .mesh = mesh,
                             .microbatches = m},
                            Device::meta());
      step.prepare();
      for (const char* machine : {"h100-sxm", "cpu"}) {
        const dist::Estimate e = step.compiled().plan(machine).estimate();
        EXPECT_LE(e.exposed_seconds, e.comm_seconds * (1 + 1e-9)) << mesh << " m " << m << " " << machine;
        EXPECT_GT(e.comm_seconds, 0);
      }
    }
}

// A step of microbatches has their work, one after another, and the sums of their gradients.
TEST(StepCost, AnEstimateHasTheWorkOfAllMicrobatches) {
  for (const char* model : {"gpt", "moe"}) {
    const auto estimate = [&](int64_t microbatches) {
      tools::ModelStep step({.model = model, .batch_size = 8, .seq_len = 64, .microbatches = microbatches},
                            Device::meta());
      step.prepare();
      return step.compiled().plan("cpu").estimate().compute_seconds;
    };
    const double one = estimate(1), two = estimate(2), four = estimate(4);
    EXPECT_GT(two, one) << model;
    // One microbatch needs no sums.
    EXPECT_NEAR((four - two) / (two - one), 1, 0.2) << model;
  }
}

Workload llama70b(int gpus, int64_t batch) { return on_h100("llama-70b", gpus, batch); }

// Collectives that run beside compute take multiprocessors from it: 24 of an H100's 132.
TEST(StepCost, HiddenCollectivesSlowCompute) {
  Workload w = llama70b(512, 512);
  const Candidate c{.fsdp = 256, .cp = 2, .zero = 3};
  const StepCost k = step_cost(w, c);
  EXPECT_GT(k.contention, 0);
  EXPECT_NEAR(k.step, k.compute + k.contention + k.exposed() + k.update, 1e-9);
  // Only gathers and reductions contend; the hidden part of cp's ring does not.
  EXPECT_LE(k.contention, 24. / 132 * (k.communication - k.exposed()) * (1 + 1e-9));
  w.machine.multiprocessors = 0;
  EXPECT_EQ(step_cost(w, c).contention, 0);
}

TEST(StepCost, AttentionHasItsOwnRate) {
  const Machine& m = machine_preset("h100-sxm");
  // The measured value (docs/gpu.md).
  EXPECT_DOUBLE_EQ(attention_rate(m, AttentionKernel::kWeft, 8192, 128, false), 493e12);
  EXPECT_DOUBLE_EQ(attention_rate(m, AttentionKernel::kWeft, 1024, 64, true), 118e12);
  EXPECT_DOUBLE_EQ(attention_rate(m, AttentionKernel::kFlash2, 8192, 256, true), 263e12);
  for (bool backward : {false, true})
    for (double length = 256; length < 1 << 20; length *= 2)
      EXPECT_LE(attention_rate(m, AttentionKernel::kCudnn, length, 128, backward),
                attention_rate(m, AttentionKernel::kCudnn, 2 * length, 128, backward));
  EXPECT_EQ(attention_rate(machine_preset("cpu"), AttentionKernel::kWeft, 8192, 128, false), 0);
  // A step with long sequences is as slow as its attention.
  Workload w = llama70b(8, 8);
  w.sequence = 1 << 20;
  w.batch = 1;
  const Candidate c{.cp = 8};
  const double weft = step_cost(w, c).compute;
  w.attention = AttentionKernel::kFlash2;
  EXPECT_NEAR(step_cost(w, c).compute / weft, (1 / 282. + 2.5 / 263) / (1 / 493. + 2.5 / 383), 0.05);
}

// If the first layer is dense, later ranks have more experts. Without pp, the head's table is gathered beside a
// layer.
TEST(StepCost, MemoryIsThatOfTheLargestRank) {
  Workload w = on_h100("mixtral-8x7b", 2, 4, 1024);
  w.model = preset_shape("mixtral-8x7b", {{"dense_layers", "1"}, {"dense_ffn", "1"}});
  const Candidate zb{.pp = 2, .schedule = "zb_h1", .microbatches = 4};
  const StepCost c = step_cost(w, zb);
  const double layer = static_cast<double>(w.model.blocks[1].parameters);
  EXPECT_NEAR(c.state, 18 * (16 * layer + static_cast<double>(w.model.table_parameters())), 0.01 * c.state);
  Workload l = on_h100("llama-8b", 8, 16);
  const double table = static_cast<double>(l.model.table_parameters()),
               dense = static_cast<double>(l.model.blocks[0].parameters);
  EXPECT_NEAR(step_cost(l, {.fsdp = 8, .zero = 3}).gathered, 2 * (table + dense), 0.01 * table);
}

// Threads of one CPU share its memory.
TEST(StepCost, RanksOfOneCpuShareItsMemory) {
  const Workload one = small("llama_tiny", 1, 8, 64), eight = small("llama_tiny", 8, 8, 64);
  EXPECT_EQ(eight.usable_memory() * 8, one.usable_memory());
}

// A rank of cp2 has one transfer, which runs beside attention on the rank's own half.
TEST(StepCost, ARingHidesBehindAttention) {
  Workload w = on_h100("llama-8b", 2, 2, 131072);
  EXPECT_EQ(step_cost(w, {.cp = 2, .microbatches = 2}).exposed_cp, 0);
  w.machine.links.inner_bus = 1;
  const StepCost slow = step_cost(w, {.cp = 2, .microbatches = 2});
  EXPECT_GT(slow.exposed_cp, 0.99 * slow.step);
}

// Later microbatches gather for their first layer behind the previous microbatch's backward.
TEST(StepCost, WaitsForTheFirstGatherOnce) {
  const auto cost = [](int64_t m) {  // one sequence of each rank in a microbatch
    return step_cost(on_h100("llama-8b", 8, 8 * m), {.fsdp = 8, .zero = 3, .microbatches = m});
  };
  const double first = cost(1).exposed_data, more = cost(2).exposed_data - first;
  EXPECT_LT(more, 0.7 * first);
  EXPECT_NEAR(cost(3).exposed_data - cost(2).exposed_data, more, 1e-9);
  EXPECT_NEAR(cost(3).communication, 3 * cost(1).communication, 1e-9);
}

// The table is gathered before the first layer, and its gradient reduced after it; its rows are scattered over tp.
TEST(StepCost, PricesTheEmbedding) {
  Workload w = on_h100("llama-8b", 8, 8), tied = w;
  tied.model.tied = true;
  const double table = static_cast<double>(w.model.table_parameters());
  const Candidate fsdp{.fsdp = 8, .zero = 3};
  const double reduced = collective_seconds(Collective::kReduceScatter, 4 * table, 8, 1, w.machine);
  EXPECT_NEAR(step_cost(w, fsdp).communication - step_cost(tied, fsdp).communication, reduced, 1e-9);
  const Timeline t = step_timeline(w, fsdp);
  const auto first = std::find_if(t.spans.begin(), t.spans.end(),
                                  [](const TimelineSpan& s) { return s.name == "gather weights of forward 0"; });
  ASSERT_NE(first, t.spans.end());
  EXPECT_GT(first->bytes, 2 * table);
  Workload small = w;
  small.model = w.model.with_layers(1);
  const StepCost c = step_cost(small, {.tp = 8});
  const double stream = 8. * 8192 * 4096 * 2;
  // The exposed collectives of the embedding and of the head alone.
  EXPECT_GE(c.exposed_tp, 5 * collective_seconds(Collective::kAllGather, stream, 8, 1, w.machine) * (1 - 1e-9));
}

// Collectives of tp take equal times with and without async_tp, which hides some of this time behind products.
TEST(StepCost, ATimelineHasHiddenCollectives) {
  Workload w = on_h100("llama-8b", 8, 1);
  w.model = w.model.with_layers(2);
  double in_pass[2] = {}, exposed[2] = {};
  for (const bool async : {false, true}) {
    w.async_tp = async;
    const Timeline t = step_timeline(w, {.tp = 8});
    for (const TimelineSpan& s : t.spans) {
      if (s.row == TimelineSpan::kExposed) exposed[async] += s.to - s.from;
      if (s.row != TimelineSpan::kInPass) continue;
      in_pass[async] += s.to - s.from;
      EXPECT_LE(s.bytes / (s.to - s.from), 600e9) << s.name;  // a link of 450e9, for 7/8 of the bytes
    }
    EXPECT_NEAR(exposed[async], t.exposed + t.blocking, 1e-9);
  }
  EXPECT_NEAR(in_pass[true], in_pass[false], 1e-9);
  EXPECT_LT(exposed[true], 0.8 * exposed[false]);
}

// All stages of a rank send, so interleaved stages send more.
TEST(StepCost, SendsOfAllStages) {
  const Workload w = on_h100("llama-8b", 2, 16, 1024);
  Candidate c{.pp = 2, .microbatches = 16};
  const double plain = step_cost(w, c).communication;
  c.schedule = "interleaved_1f1b";
  c.stages_per_rank = 4;
  EXPECT_NEAR(step_cost(w, c).communication / plain, 4, 0.1);
}

}  // namespace
}  // namespace weft::planner
