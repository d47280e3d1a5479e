// Published runs against predictions, as relative effects: from the known facts of each run, the planner predicts the
// ratio of two runs. No rate is fitted to the runs. Rows that miss by more than 10 % have their gap and its reason.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "tools/plan/search.h"

namespace weft::planner {
namespace {

// ---- Megatron-LM, H100, README of 2024: weak scaling of GPT with 131,072 words and sequences of 4096 ----

struct Gpt {
  const char* name;
  int64_t heads, dim, layers;
  int tp, pp, gpus;
  int64_t batch;
  double tflops;  // TFLOP/s of a GPU in Megatron's count: attention without the mask
};
const Gpt kMegatron[] = {
    {"1.7B", 16, 2048, 24, 1, 1, 48, 192, 408.8},       {"7.1B", 32, 4096, 30, 2, 1, 96, 192, 465.9},
    {"16B", 48, 6144, 32, 4, 1, 192, 192, 489.1},       {"32B", 56, 7168, 48, 8, 1, 384, 192, 459.6},
    {"70B", 64, 8192, 84, 8, 2, 768, 384, 419.7},       {"119B", 80, 10240, 92, 8, 4, 1536, 768, 420.5},
    {"177B", 96, 12288, 96, 8, 6, 2304, 1152, 432.8},   {"314B", 128, 16384, 96, 8, 8, 3072, 1536, 474.4},
    {"462B", 144, 18432, 112, 8, 16, 6144, 3072, 459.9}};

PricedCandidate megatron(const Gpt& g, Workload& w) {
  w = {.model = preset_shape("gpt2", {{"vocab", "131072"},
                                      {"context", "4096"},
                                      {"layers", std::to_string(g.layers)},
                                      {"dim", std::to_string(g.dim)},
                                      {"heads", std::to_string(g.heads)},
                                      {"ffn", std::to_string(4 * g.dim)},
                                      {"bias", "false"},
                                      {"rms_norm", "true"},
                                      {"tied", "false"}}),
       .machine = machine_preset("h100-sxm"),
       .gpus = g.gpus,
       .batch = g.batch,
       .sequence = 4096,
       .attention = AttentionKernel::kCudnn};
  // The microbatch and the number of stages of a rank are not published: the best values that fit.
  const int dp = g.gpus / g.tp / g.pp;
  const int64_t sequences = g.batch / dp;
  std::optional<PricedCandidate> best;
  for (int64_t size : {1, 2, 4})
    for (int stages : {1, 2, 4}) {
      Candidate c{.dp = dp, .tp = g.tp, .pp = g.pp, .zero = 1, .microbatches = sequences / size};
      if (stages > 1) c.schedule = "interleaved_1f1b", c.stages_per_rank = stages;
      if (c.microbatches % g.pp != 0 || g.layers < g.pp * stages || (g.pp == 1 && stages > 1)) continue;
      const StepCost k = simulated_cost(w, c);
      if (k.memory() <= w.usable_memory() && (!best || k.step < best->cost.step)) best = {c, k};
    }
  EXPECT_TRUE(best) << g.name;
  return best.value_or(PricedCandidate{});
}

double flops_per_token(const Gpt& g) {
  const double l = static_cast<double>(g.layers), h = static_cast<double>(g.dim);
  return 72 * l * h * h + 12 * 4096 * h * l + 6 * h * 131072;
}

// The ratio of predicted to published TFLOP/s, over the geometric mean of this ratio for all rows. Megatron, unlike the
// planner, gathers new weights behind forward (--overlap-param-gather).
double megatron_effect(const std::string& name) {
  static const auto* ratios = new std::map<std::string, double>([] {
    std::map<std::string, double> all;
    for (const Gpt& g : kMegatron) {
      Workload w;
      const PricedCandidate p = megatron(g, w);
      const double seconds = p.cost.step - p.cost.update_gather;
      all[g.name] = w.tokens() / seconds / w.gpus * flops_per_token(g) / 1e12 / g.tflops;
    }
    return all;
  }());
  double mean = 0;
  for (const auto& [model, ratio] : *ratios) mean += std::log(ratio) / std::size(kMegatron);
  return ratios->at(name) / std::exp(mean);
}

// ---- torchtitan, December 2024: H100 with 96 GB of HBM2e (2.4 TB/s) and 500 W; attention is FlashAttention 2 ----

Workload titan(const char* model, int gpus, int64_t batch, int64_t sequence = 8192) {
  Workload w{.model = preset_shape(model),
             .machine = machine_preset("h100-sxm"),
             .gpus = gpus,
             .batch = batch,
             .sequence = sequence,
             .attention = AttentionKernel::kFlash2};
  w.machine.bytes = 2.2e12;
  w.machine.memory = 96e9;
  return w;
}
double speed(const Workload& w, const Candidate& c) { return simulated_cost(w, c).tokens_per_gpu_second(w); }

Workload fp8(Workload w) {
  w.products = kFloat8E4M3;
  return w;
}

double context_parallel(int cp) {
  return speed(fp8(titan("llama-8b", 8, 8 / cp, int64_t{32768} * cp)),
               {.fsdp = 8 / cp, .cp = cp, .zero = 3, .full_recompute = true});
}
double four_dimensions(int cp) {
  return speed(fp8(titan("llama-405b", 512, 64 / cp, int64_t{32768} * cp)),
               {.fsdp = 8 / cp, .tp = 8, .cp = cp, .pp = 8, .zero = 3, .microbatches = 8, .full_recompute = true});
}

// One microbatch of 16 sequences; all layers are computed again.
double async_tp_effect(Workload w) {
  const Candidate c{.fsdp = 32, .tp = 8, .zero = 3, .full_recompute = true};
  const double with = speed(w, c);
  w.async_tp = false;
  return with / speed(w, c);
}

double interleaving_effect() {
  const Workload w = fp8(titan("llama-405b", 512, 256));
  Candidate c{.fsdp = 8, .tp = 8, .pp = 8, .zero = 3, .microbatches = 8, .full_recompute = true};
  const double plain = speed(w, c);
  c.schedule = "interleaved_1f1b";
  c.stages_per_rank = 2;
  return speed(w, c) / plain;
}

double speed_of_8b(int gpus, bool products8) {
  const Workload w = titan("llama-8b", gpus, 2 * gpus);
  return speed(products8 ? fp8(w) : w, {.fsdp = gpus, .zero = 3});
}

double recomputation() {
  const Workload w = titan("llama-8b", 8, 16);
  return step_cost(w, {.fsdp = 8, .zero = 3, .full_recompute = true}).compute /
         step_cost(w, {.fsdp = 8, .zero = 3}).compute;
}

double gpt2_seconds() {
  const Workload w{
      .model = preset_shape("gpt2"), .machine = machine_preset("h100-sxm"), .gpus = 1, .batch = 16, .sequence = 1024};
  return step_cost(w, {}).step;
}

struct Row {
  const char* effect;
  std::function<double()> predicted;
  double published;
  double gap;  // predicted / published - 1 if the row misses by more than 10 %, else 0
};

const Row kRows[] = {
    {"GPT-2 124M, one H100, 16 x 1024 tokens: seconds (docs/gpu.md)", gpt2_seconds, 34.5e-3, 0},

    // Small layers have the largest share of elementwise work, which that version fuses less, and its loss reads the
    // 131,072 logits of each token several times in f32.
    {"Megatron 1.7B", [] { return megatron_effect("1.7B"); }, 1, 0.22},
    {"Megatron 7.1B", [] { return megatron_effect("7.1B"); }, 1, 0},
    {"Megatron 16B", [] { return megatron_effect("16B"); }, 1, 0},
    {"Megatron 32B", [] { return megatron_effect("32B"); }, 1, 0},
    {"Megatron 70B", [] { return megatron_effect("70B"); }, 1, 0},
    {"Megatron 119B", [] { return megatron_effect("119B"); }, 1, 0},
    {"Megatron 177B", [] { return megatron_effect("177B"); }, 1, 0},
    {"Megatron 314B", [] { return megatron_effect("314B"); }, 1, 0},
    {"Megatron 462B", [] { return megatron_effect("462B"); }, 1, 0},
    {"Megatron: full recomputation costs about 30 %", recomputation, 1.3, 0},

    {"V32 405B, interleaved over 1f1b", interleaving_effect, 128. / 100, 0},
    {"V32 70B bf16, async tp, June 2025", [] { return async_tp_effect(titan("llama-70b", 256, 512)); }, 652.4 / 597.3,
     0},
    // The same run half a year later gained 16 %: the first version of async tp hid less than its rings can.
    {"V32 70B fp8, async tp, December 2024", [] { return async_tp_effect(fp8(titan("llama-70b", 256, 512))); },
     876. / 829, 0.1},
    {"V32 70B fp8, async tp, June 2025", [] { return async_tp_effect(fp8(titan("llama-70b", 256, 512))); },
     942.4 / 809.8, 0},
    {"8B, 128 GPUs over 8", [] { return speed_of_8b(128, false) / speed_of_8b(8, false); }, 6514. / 6667, 0},
    {"8B, fp8 over bf16", [] { return speed_of_8b(8, true) / speed_of_8b(8, false); }, 8532. / 6667, 0},

    // If all else takes the planner's time, attention falls from about 240 to 180 TFLOP/s of a GPU between cp 2 and
    // cp 4. Transfers are 1 % of its time and merging partial results about 6 %: the cause is not known.
    {"8B, 64k with cp 2 over 32k", [] { return context_parallel(2) / context_parallel(1); }, 2540. / 3890, 0},
    {"8B, 128k with cp 4 over 64k with cp 2", [] { return context_parallel(4) / context_parallel(2); }, 1071. / 2540,
     0.32},
    {"8B, 256k with cp 8 over 128k with cp 4", [] { return context_parallel(8) / context_parallel(4); }, 548. / 1071,
     0},
    {"405B, 64k with cp 2 over 32k", [] { return four_dimensions(2) / four_dimensions(1); }, 47. / 76, 0.16},
    {"405B, 128k with cp 4 over 64k with cp 2", [] { return four_dimensions(4) / four_dimensions(2); }, 31. / 47, 0},
    {"405B, 256k with cp 8 over 128k with cp 4", [] { return four_dimensions(8) / four_dimensions(4); }, 16. / 31,
     0.13},
};

TEST(Published, RelativeEffects) {
  for (const Row& r : kRows) {
    const double off = r.predicted() / r.published - 1;
    printf("%-66s predicted %.4g, published %.4g, %+.1f %%\n", r.effect, r.predicted(), r.published, 100 * off);
    EXPECT_NEAR(off, r.gap, r.gap == 0 ? 0.1 : 0.01) << r.effect;
  }
}

}  // namespace
}  // namespace weft::planner
