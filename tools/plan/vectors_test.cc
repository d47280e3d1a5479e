// One row for each published or computed figure that the planner must reproduce: input, formula, expected. Figures of
// other packages are beside their functions: tools/plan/limits_test.cc, distributed/pipeline/simulate_test.cc,
// distributed/launch/golden_test.cc, and tests of compiler/cost.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "compiler/cost/machine/machine_file.h"
#include "compiler/cost/roofline.h"
#include "distributed/pipeline/schedules.h"
#include "distributed/pipeline/simulate.h"
#include "tools/plan/inference.h"
#include "tools/plan/limits.h"
#include "tools/plan/pipeline_cost.h"
#include "tools/plan/report/advice.h"
#include "tools/plan/report/what_if.h"
#include "tools/plan/search.h"
#include "tools/plan/testing/step_sums.h"

namespace weft::planner {
namespace {

struct Row {
  const char* vector;
  std::function<double()> formula;
  double expected, tolerance;  // relative
};

const Machine& h100() { return machine_preset("h100-sxm"); }

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

// The increase by one more layer of Llama 8B in the tp collectives of a step with one sequence of 16,384 tokens, in
// units of the residual stream: all collectives that the planner prices, including backward and residual stream.
CollectiveBytes streams_of_layer() {
  const auto of = [](int64_t layers) {
    Workload w{.model = preset_shape("llama-8b"), .machine = h100(), .gpus = 8, .batch = 1, .sequence = 16384};
    w.model = w.model.with_layers(layers);
    return collective_bytes(w, {.tp = 8});
  };
  const CollectiveBytes one = of(1), two = of(2);
  const double stream = 16384. * 4096 * 2;
  return {.tp_gathered = (two.tp_gathered - one.tp_gathered) / stream,
          .tp_scattered = (two.tp_scattered - one.tp_scattered) / stream};
}

// Tokens per second of 16 microbatches over 8 microbatches on 8 ranks of a pipeline. `host`: seconds of the host for
// all launches of a microbatch.
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
      {"V19 data sheet", [] { return h100().products16 / h100().theoretical.bytes; }, 295, 5e-3},
      {"V19 measured", [] { return h100().products16 / h100().bytes; }, 330, 5e-3},
      // Erratum: the source prints sparse peaks. Dense TF32 is half of dense bf16.
      {"V19 TF32", [] { return with_tf32(h100(), true).products_of(kFloat32); }, 494.7e12, 0},
      {"V27", [] { return state_bytes(70e9 / 16, 1, 48, 2); }, 27.3e9, 2e-3},
      {"bytes a parameter, fp32", [] { return state_bytes(1, 1, 4, 4); }, 8 + 8 / 4., 0},
      // Forward gathers 2 and scatters 2; backward gathers 4, and scatters 2.
      {"V28 gathered, 2 + 4", [] { return streams_of_layer().tp_gathered; }, 6, 1e-12},
      {"V28 scattered into the residual stream, 2 + 2", [] { return streams_of_layer().tp_scattered; }, 4, 1e-12},
      // GB200 against B200 at 8 GPUs: 10 to 15 %.
      {"V31", [] { return machine_preset("gb200").products16 / machine_preset("b200").products16; }, 1.125, .025},
      {"V33 SXM", [] { return h100().multiprocessors; }, 132, 0},
      {"V33 PCIe", [] { return machine_preset("h100-pcie").multiprocessors; }, 114, 0},
      {"V33 difference", [] { return 1 - machine_preset("h100-pcie").multiprocessors / 132.; }, .136, 5e-3},
      {"V33 stacks and L2", [] { return h100().hbm_stacks * h100().l2; }, 5 * 50e6, 0},
      // marin#6532: one controller starts every action of all ranks. Twice the microbatches of equal size are twice the
      // launches; the bubble falls from 47 to 30 %, the speed stays (8,077 and 7,987 tokens/s).
      {"V35", [] { return speedup_by_microbatches(8 * 900 * 7e-6); }, 7987. / 8077, .02},
      {"V35 without the controller", [] { return speedup_by_microbatches(0); }, (1 + 7 / 8.) / (1 + 7 / 16.), .05},
      {"V41",
       [] { return decode_bound({.model = preset_shape("qwen-32b"), .machine = machine_preset("rtx-pro-6000")}, 1); },
       27, .02},
  };
  return all;
}

TEST(Vectors, Rows) {
  for (const Row& r : rows()) EXPECT_NEAR(r.formula(), r.expected, r.tolerance * std::abs(r.expected)) << r.vector;
}

// The closed forms equal the bubbles of the tables that ranks run.
TEST(Vectors, BubblesAreThoseOfTheTables) {
  namespace pl = dist::pipeline;
  for (const auto& [schedule, v] : kSchedules)
    for (int p : {2, 4, 8})
      for (int time = 0; time < 125; ++time) {
        const double f = 1 + time % 5, i = 1 + time / 5 % 5, w = 1 + time / 25;
        const int m = time % 2 ? 2 * p : 4 * p;
        const pl::Table table = pl::make_schedule(schedule, {.ranks = p, .stages_per_rank = v, .microbatches = m});
        const pl::Simulation run =
            pl::simulate(table, pl::StageLinks(p * v), pl::ActionCosts::equal(p * v, f / v, i / v, w / v));
        EXPECT_NEAR(run.makespan - m * (f + i + w), bubble_seconds(schedule, p, v, f, i, w), 1e-9)
            << schedule << " v " << v << " p " << p << " m " << m << " F " << f << " I " << i << " W " << w;
        for (int rank = 0; rank < p; ++rank)
          EXPECT_EQ(run.ranks[static_cast<size_t>(rank)].alive, v * alive_microbatches(schedule, p, v, m, rank))
              << schedule << " v " << v << " p " << p << " m " << m << " rank " << rank;
      }
}

// V8: a tenth of the network, or GPUs 8 times as fast, change the advice about data parallelism alone.
TEST(Vectors, V8ChangesTheAdvice) {
  const Workload s = slide(480, 4'000'000 / 8000, 8000);
  EXPECT_EQ(limits_of(s).scale_case, ScaleCase::kFsdp);
  EXPECT_EQ(limits_of(what_if(s, "gpu_flops=2x")[1].workload).scale_case, ScaleCase::kFsdp);
  for (const char* change : {"network=0.1x", "gpu_flops=8x"})
    EXPECT_EQ(limits_of(what_if(s, change)[1].workload).scale_case, ScaleCase::kComm) << change;
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
