// One row for each published or computed figure that the planner must reproduce: input, formula, expected. Rows of
// roofline_test.cc and simulate_test.cc have the same names where the functions are there; those that need the
// partitioner (V13, V28, V30) are in distributed/launch/golden_test.cc.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "compiler/cost/collective_seconds.h"
#include "compiler/cost/machine_file.h"
#include "compiler/cost/roofline.h"
#include "distributed/pipeline/schedules.h"
#include "distributed/pipeline/simulate.h"
#include "distributed/plan/limits.h"
#include "tools/plan/advice.h"
#include "tools/plan/inference.h"
#include "tools/plan/pipeline_cost.h"
#include "tools/plan/search.h"
#include "tools/plan/what_if.h"

namespace weft::planner {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

struct Row {
  const char* vector;
  std::function<double()> formula;
  double expected, tolerance;  // relative
};

const Machine& h100() { return machine_preset("h100-sxm"); }
// 8e6 tokens on GPUs of 200e12 operations a second.
dist::ScaleCase case_of(double gpus, double sequence, double bandwidth) {
  return dist::scale_case(gpus, dist::fsdp_comm_limit(8e6, bandwidth, 200e12), dist::fsdp_batch_limit(8e6, sequence));
}
double number_of(dist::ScaleCase c) { return static_cast<double>(c); }

// Bubble over ideal time of F = I = W = 1.
double bubble(const char* schedule, int p, int64_t m, int v = 1) {
  return bubble_seconds(schedule, p, v, 1, 1, 1) / (3.0 * static_cast<double>(m));
}
// F, I, W = 2, 3, 1.
double uneven(const char* schedule, int v = 1) { return bubble_seconds(schedule, 4, v, 2, 3, 1); }

// Llama 70B on slide numbers: 200e9 bytes/s of each link, 200e12 operations a second.
Workload slide(int gpus, int64_t batch, int64_t sequence) {
  Workload s{.model = preset_shape("llama-70b"),
             .machine = machine_from_json(R"({"bytes": 3e12, "flops": 1e13, "products": 1e14, "products16": 200e12,
              "memory": 80e9, "links": {"node": 1, "inner_bus": 200e9, "outer_bus": 200e9, "ramp": 1}})",
                                          "slide"),
             .gpus = gpus,
             .batch = batch,
             .sequence = sequence};
  return s;
}
double slide_limit(const char* change) {
  return limits_of(what_if(slide(4000, 4'000'000 / 8000, 8000), change)[1].workload).closed_form;
}

// What one more layer of Llama 8B adds to the tp collectives of a step with one sequence of 16,384 tokens, in units of
// the residual stream: all that the planner prices, backward and residual stream included.
CollectiveBytes streams_of_layer() {
  const auto of = [](int64_t layers) {
    Workload w{.model = preset_shape("llama-8b"), .machine = h100(), .gpus = 8, .batch = 1, .sequence = 16384};
    w.model.layers = layers;
    return collective_bytes(w, {.tp = 8});
  };
  const CollectiveBytes one = of(1), two = of(2);
  const double stream = 16384. * 4096 * 2;
  return {.tp_gathered = (two.tp_gathered - one.tp_gathered) / stream,
          .tp_scattered = (two.tp_scattered - one.tp_scattered) / stream};
}

// Tokens a second of 16 microbatches over 8 ranks of a pipeline by those of 8; `host`: seconds of the host for all
// launches of a microbatch.
double speedup_by_microbatches(double host) {
  const auto speed = [&](int64_t m) {
    const Workload s{.model = preset_shape("llama-8b"),
                     .machine = h100(),
                     .gpus = 8,
                     .batch = m,
                     .sequence = 2048,
                     .host_seconds = host / (4 * 36)};  // launches of 4 layers
    return simulated_cost(s, {.pp = 8, .microbatches = m}).tokens_per_gpu_second(s);
  };
  return speed(16) / speed(8);
}

const std::vector<Row>& rows() {
  static const std::vector<Row> all{
      {"V1", [] { return dist::fsdp_comm_seconds(70e9, 2, 200e9); }, 2.1, 1e-12},
      {"V2", [] { return dist::train_compute_seconds(70e9, 4e6, 200e12, 4000); }, 2.1, 1e-12},
      // Erratum: the source prints 2.1 for these.
      {"V3 communication", [] { return dist::fsdp_comm_seconds(70e9, 2, 100e9); }, 4.2, 1e-12},
      {"V3 compute", [] { return dist::train_compute_seconds(70e9, 8e6, 200e12, 4000); }, 4.2, 1e-12},
      {"V3 limit", [] { return dist::fsdp_comm_limit(8e6, 100e9, 200e12); }, 4000, 1e-12},
      {"V4", [] { return dist::train_compute_seconds(70e9, 4e6, 200e12, 8000); }, 1.05, 1e-12},
      {"V5 8192", [] { return dist::fsdp_batch_limit(8e6, 8192); }, 976.6, 1e-4},
      {"V5 8000", [] { return dist::fsdp_batch_limit(8e6, 8000); }, 1000, 1e-12},
      {"V6 500", [] { return number_of(case_of(500, 8000, 200e9)); }, 1, 0},
      {"V6 2000", [] { return number_of(case_of(2000, 8000, 200e9)); }, 2, 0},
      {"V6 4000", [] { return number_of(case_of(4000, 1000, 50e9)); }, 3, 0},
      {"V6 10000", [] { return number_of(case_of(10000, 8000, 200e9)); }, 4, 0},
      {"V6 16000", [] { return number_of(case_of(16000, 1000, 50e9)); }, 4, 0},
      {"V7", [] { return slide_limit("network=1x"); }, 4000, 1e-9},
      {"V7 of another model",
       [] {
         Workload s = slide(4000, 500, 8000);
         s.model = preset_shape("gpt2");
         return limits_of(s).closed_form;
       },
       4000, 1e-9},
      {"V8 flops", [] { return slide_limit("gpu_flops=8x"); }, 500, 1e-9},
      {"V8 network", [] { return slide_limit("network=0.1x"); }, 400, 1e-9},
      // Bubble fraction: bubble / (bubble + ideal).
      {"V9 4,4", [] { return bubble("1f1b", 4, 4) / (1 + bubble("1f1b", 4, 4)); }, .4286, 2e-4},
      {"V9 4,8", [] { return bubble("1f1b", 4, 8) / (1 + bubble("1f1b", 4, 8)); }, .2727, 2e-4},
      {"V9 8,8", [] { return bubble("1f1b", 8, 8) / (1 + bubble("1f1b", 8, 8)); }, .4667, 2e-4},
      {"V9 8,32", [] { return bubble("1f1b", 8, 32) / (1 + bubble("1f1b", 8, 32)); }, .1795, 2e-4},
      {"V9 8,64", [] { return bubble("1f1b", 8, 64) / (1 + bubble("1f1b", 8, 64)); }, .0986, 4e-4},
      {"V9 16,64", [] { return bubble("1f1b", 16, 64) / (1 + bubble("1f1b", 16, 64)); }, .1899, 2e-4},
      {"V10 1f1b", [] { return bubble("1f1b", 8, 32); }, .21875, 1e-12},
      {"V10 v=4", [] { return bubble("interleaved_1f1b", 8, 32, 4); }, .0547, 1e-3},
      {"V10 zb_h1", [] { return bubble("zb_h1", 8, 32); }, .0729, 1e-3},
      // Erratum: the source has 1F1B reduce the bubble. It has GPipe's bubble, and keeps p microbatches instead of m.
      {"V11 bubble", [] { return bubble("gpipe", 8, 32) / bubble("1f1b", 8, 32); }, 1, 1e-12},
      {"V11 gpipe keeps", [] { return alive_microbatches("gpipe", 8, 1, 32); }, 32, 0},
      {"V11 1f1b keeps", [] { return alive_microbatches("1f1b", 8, 1, 32); }, 8, 0},
      // (G/B)(1-1/P): with a fixed batch and number of GPUs, m = B P / G.
      {"V12 2", [] { return bubble("1f1b", 2, 4000 * 2 / 2000); }, .25, 1e-12},
      {"V12 4", [] { return bubble("1f1b", 4, 4000 * 4 / 2000); }, .375, 1e-12},
      {"V12 8", [] { return bubble("1f1b", 8, 4000 * 8 / 2000); }, .4375, 1e-12},
      {"V12 16", [] { return bubble("1f1b", 16, 4000 * 16 / 2000); }, .469, 1e-3},
      {"V12 G=4000 16", [] { return bubble("1f1b", 16, 1000 * 16 / 4000); }, 3.75, 1e-12},
      {"V14", [] { return ring_seconds(Collective::kAllReduce, kGiB, 8, 480e9); }, 3.915e-3, 1e-3},
      {"V15", [] { return bus_bandwidth(Collective::kAllReduce, 128, 16, h100()); }, 334e9, .15},
      {"V16", [] { return bus_bandwidth(Collective::kAllReduce, 8, 1, h100()); }, 467e9, 1e-3},
      {"V16 against 480", [] { return bus_bandwidth(Collective::kAllReduce, 8, 1, h100()); }, 480e9, .03},
      {"V17 all-reduce over 128 ranks, 320 to 350",
       [] { return bus_bandwidth(Collective::kAllReduce, 128, 16, h100()); }, 335e9, 15. / 335},
      {"V17 HBM3", [] { return h100().bytes; }, 3e12, 0},
      {"V19 data sheet", [] { return h100().products16 / h100().theoretical.bytes; }, 295, 5e-3},
      {"V19 measured", [] { return h100().products16 / h100().bytes; }, 330, 5e-3},
      // Erratum: the source prints sparse peaks. Dense TF32 is half of dense bf16.
      {"V19 TF32", [] { return with_tf32(h100(), true).products_of(kFloat32); }, 494.7e12, 0},
      {"V27", [] { return state_bytes(70e9 / 16, 1, 48, 2); }, 27.3e9, 2e-3},
      {"bytes a parameter, fp32", [] { return state_bytes(1, 1, 4, 4); }, 8 + 8 / 4., 0},
      {"V29", [] { return dist::dispatch_bytes(4096, 2, 1024, 8); }, 4096. * 2 * 1024 * 2 * 7 / 8, 0},
      // Forward gathers 2 and scatters 2; backward gathers 4, and scatters 2.
      {"V28 gathered, 2 + 4", [] { return streams_of_layer().tp_gathered; }, 6, 1e-12},
      {"V28 scattered into the residual stream, 2 + 2", [] { return streams_of_layer().tp_scattered; }, 4, 1e-12},
      // 8 experts, one on each rank; 90 % of the tokens choose the same one.
      {"V29 skew",
       [] {
         const double shares[8] = {0.9, 0.1 / 7, 0.1 / 7, 0.1 / 7, 0.1 / 7, 0.1 / 7, 0.1 / 7, 0.1 / 7};
         return dist::expert_skew(shares, 8);
       },
       7.2, 1e-12},
      // GB200 against B200 at 8 GPUs: 10 to 15 %.
      {"V31", [] { return machine_preset("gb200").products16 / machine_preset("b200").products16; }, 1.125, .025},
      {"V33 SXM", [] { return h100().multiprocessors; }, 132, 0},
      {"V33 PCIe", [] { return machine_preset("h100-pcie").multiprocessors; }, 114, 0},
      {"V33 difference", [] { return 1 - machine_preset("h100-pcie").multiprocessors / 132.; }, .136, 5e-3},
      {"V33 stacks and L2", [] { return h100().hbm_stacks * h100().l2; }, 5 * 50e6, 0},
      // marin#6532: one controller starts every action of all ranks. Twice as many microbatches, each as large, are
      // twice the launches; the bubble falls from 47 to 30 %, the speed stays (8,077 and 7,987 tokens/s).
      {"V35", [] { return speedup_by_microbatches(8 * 900 * 7e-6); }, 7987. / 8077, .02},
      {"V35 without the controller", [] { return speedup_by_microbatches(0); }, (1 + 7 / 8.) / (1 + 7 / 16.), .05},
      {"V36", [] { return 6.6e-6 + ring_seconds(Collective::kAllGather, .0625, 8, 87.7, .6e-6); }, 634.4e-6, 1e-4},
      {"V36 table", [] { return collective_seconds(Collective::kAllGather, 64. * 1024 * 1024, 8, 1, h100()); }, 200e-6,
       .01},
      {"V40 NVLink", [] { return ring_seconds(Collective::kAllReduce, 8192. * 8192 * 2, 8, 480e9); }, .49e-3, 5e-3},
      {"V40 network", [] { return ring_seconds(Collective::kAllReduce, 8192. * 8192 * 2, 8, 50e9); }, 4.7e-3, 5e-3},
      {"V41",
       [] { return decode_bound({.model = preset_shape("qwen-32b"), .machine = machine_preset("rtx-pro-6000")}, 1); },
       27, .02},
      {"V42", [] { return bubble_seconds("gpipe", 4, 1, 1, 1, 1); }, 9, 0},
      {"V42 8", [] { return bubble_seconds("gpipe", 8, 1, 1, 1, 1); }, 21, 0},
      {"V42 uneven", [] { return uneven("gpipe"); }, 18, 0},
      {"V43", [] { return bubble_seconds("1f1b", 4, 1, 1, 1, 1); }, 9, 0},
      {"V43 uneven", [] { return uneven("1f1b"); }, 18, 0},
      {"V44", [] { return bubble_seconds("interleaved_1f1b", 4, 2, 1, 1, 1); }, 4.5, 0},
      {"V44 v=4", [] { return bubble_seconds("interleaved_1f1b", 8, 4, 1, 1, 1); }, 5.25, 0},
      {"V44 uneven", [] { return uneven("interleaved_1f1b", 2); }, 9, 0},
      {"V44 peak", [] { return alive_microbatches("interleaved_1f1b", 4, 2, 8); }, 5.5, 0},
      {"V44 peak v=4", [] { return alive_microbatches("interleaved_1f1b", 8, 4, 32); }, 9.75, 0},
      {"V45", [] { return bubble_seconds("zb_h1", 4, 1, 1, 1, 1); }, 3, 0},
      {"V45 uneven", [] { return uneven("zb_h1"); }, 12, 0},
      {"V46", [] { return bubble_seconds("zb_2p", 8, 1, 1, 1, 1); }, 7, 0},
      {"V46 uneven", [] { return uneven("zb_2p"); }, 9, 0},
      {"V46 peak", [] { return alive_microbatches("zb_2p", 8, 1, 32); }, 15, 0},
      {"V47", [] { return bubble_seconds("zb_v", 4, 2, 1, 1, 1); }, 1.5, 0},
      {"V47 uneven", [] { return uneven("zb_v", 2); }, 6, 0},
      {"V48 without pairs", [] { return bubble_seconds("dualpipe_v", 4, 2, 1, 1, 1); }, 1.5, 0},
      {"V48 8 without pairs", [] { return bubble_seconds("dualpipe_v", 8, 2, 1, 1, 1); }, 3.5, 0},
      {"V48 peak", [] { return alive_microbatches("dualpipe_v", 8, 2, 32); }, 8.5, 0},
      // 64 MiB over 2 ranks at 20e9 bytes/s read plus written: 4 times the operand.
      {"V53", [] { return dist::shared_memory_floor(2, 64 * 1024 * 1024, 20e9); }, 4 * 67108864 / 20e9, 1e-12},
      // What one rank copies alone in a second, n ranks together reduce in 2 n / 2 = n.
      {"V53 over copies", [] { return dist::shared_memory_floor(8, 1e9, 2e9); }, 8, 1e-12},
  };
  return all;
}

TEST(Vectors, Rows) {
  for (const Row& r : rows()) EXPECT_NEAR(r.formula(), r.expected, r.tolerance * std::abs(r.expected)) << r.vector;
}

// The closed forms are those of the tables that ranks run.
TEST(Vectors, BubblesAreThoseOfTheTables) {
  namespace pl = dist::pipeline;
  for (const auto& [schedule, v] : {std::pair("gpipe", 1),
                                    {"1f1b", 1},
                                    {"interleaved_1f1b", 2},
                                    {"interleaved_1f1b", 4},
                                    {"zb_h1", 1},
                                    {"zb_2p", 1},
                                    {"zb_v", 2},
                                    {"dualpipe_v", 2}})
    for (int p : {2, 4, 8})
      for (int time = 0; time < 125; ++time) {
        const double f = 1 + time % 5, i = 1 + time / 5 % 5, w = 1 + time / 25;
        const int m = time % 2 ? 2 * p : 4 * p;
        const pl::Table table = pl::make_schedule(schedule, {.ranks = p, .stages_per_rank = v, .microbatches = m});
        const pl::Simulation run = pl::simulate(table, pl::Links(p * v), pl::Costs::equal(p * v, f / v, i / v, w / v));
        EXPECT_NEAR(run.makespan - m * (f + i + w), bubble_seconds(schedule, p, v, f, i, w), 1e-9)
            << schedule << " v " << v << " p " << p << " m " << m << " F " << f << " I " << i << " W " << w;
        for (int rank = 0; rank < p; ++rank)
          EXPECT_EQ(run.ranks[static_cast<size_t>(rank)].alive, v * alive_microbatches(schedule, p, v, m, rank))
              << schedule << " v " << v << " p " << p << " m " << m << " rank " << rank;
      }
}

// V8: a network of a tenth, or GPUs 8 times as fast, change the advice for what data parallelism alone could do.
TEST(Vectors, V8ChangesTheAdvice) {
  const Workload s = slide(480, 4'000'000 / 8000, 8000);
  EXPECT_EQ(limits_of(s).scale_case, dist::ScaleCase::kFsdp);
  EXPECT_EQ(limits_of(what_if(s, "gpu_flops=2x")[1].workload).scale_case, dist::ScaleCase::kFsdp);
  for (const char* change : {"network=0.1x", "gpu_flops=8x"})
    EXPECT_EQ(limits_of(what_if(s, change)[1].workload).scale_case, dist::ScaleCase::kComm) << change;
}

// The priced limit has gradients in f32, which take 8 bytes of a parameter instead of 6, and all compute of a step.
TEST(Vectors, TheLimitOfV7IsNearThePrices) {
  const Limits l = limits_of(slide(4000, 500, 8000));
  const Workload s = slide(4000, 500, 8000);
  const double more = s.model.training_flops(8000) / (6 * static_cast<double>(s.model.parameters()));
  EXPECT_NEAR(l.communication / (l.closed_form * 6 / 8 * more), 1, 0.1);
}

}  // namespace
}  // namespace weft::planner
