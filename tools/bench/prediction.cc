// prediction: the time and the peak memory of training steps as the planner predicts them and as they are here, for
// gpt_base, moe_small and three configurations that a seed draws, on one device and on meshes of thread ranks. The
// rates come from `//tools:doctor -- --measure --out FILE`.
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "distributed/distributed.h"
#include "models/hf/families.h"
#include "tools/bench/benchmark.h"
#include "tools/step/model_step.h"

ABSL_FLAG(std::string, machine, "", "rates of this machine: a file of doctor --measure --out");
ABSL_FLAG(uint64_t, seed, 1, "seed of the three configurations");
ABSL_FLAG(int32_t, steps, 6, "steps of each configuration; the shortest counts");
ABSL_FLAG(int64_t, batch, 8, "sequences of a step");
ABSL_FLAG(int64_t, tokens, 256, "tokens of a sequence");

namespace weft::bench {
namespace {

struct PredictedModel {
  const nn::ModelFamily* family;
  std::string preset;
  nn::ConfigMap fields;
};

bool has_field(const PredictedModel& m, const char* name) { return m.family->preset(m.preset).contains(name); }

// Draws a model of any family, with sizes for a step of about a second.
PredictedModel drawn(std::mt19937_64& random) {
  const auto one_of = [&](std::vector<int64_t> all) { return all[random() % all.size()]; };
  const nn::ModelFamily* family = model_families()[random() % model_families().size()];
  const int64_t heads = one_of({2, 4, 8}), dim = heads * one_of({32, 64});
  PredictedModel m{family, family->default_preset, {}};
  m.fields = {{"vocab", str_cat(one_of({256, 1024, 4096}))},
              {"context", str_cat(absl::GetFlag(FLAGS_tokens))},
              {"layers", str_cat(one_of({2, 4, 6}))},
              {"heads", str_cat(heads)},
              {"dim", str_cat(dim)},
              {"ffn", str_cat(dim * one_of({2, 3, 4}))}};
  if (has_field(m, "kv_heads")) m.fields["kv_heads"] = str_cat(one_of({1, 2, heads}));
  if (has_field(m, "experts")) {
    m.fields["experts"] = str_cat(one_of({4, 8}));
    m.fields["top_k"] = str_cat(one_of({1, 2}));
  }
  return m;
}

std::string name_of(const PredictedModel& m) {
  if (m.fields.empty()) return m.preset;
  std::string name = m.family->name;
  for (const auto& [field, value] : m.fields) name += str_cat(" ", field, " ", value);
  return name;
}

void measure(Report& report, const PredictedModel& m, const std::string& dtype, const std::string& mesh) {
  const tools::StepChoice choice{.model = m.family->name,
                                 .config = m.preset,
                                 .fields = m.fields,
                                 .batch_size = absl::GetFlag(FLAGS_batch),
                                 .seq_len = absl::GetFlag(FLAGS_tokens),
                                 .dtype = dtype,
                                 .mesh = mesh};
  tools::ModelStep step(choice);
  step.run();
  double least = 1e30;
  for (int i = 0; i < absl::GetFlag(FLAGS_steps); ++i) least = std::min(least, step.run());
  const dist::PlanReport plan = step.compiled().plan(absl::GetFlag(FLAGS_machine));
  const double predicted = plan.estimate().step_seconds();
  const auto stats = step.compiled().stats();
  report.add({str_cat(name_of(m), ", ", dtype, mesh.empty() ? "" : ", ", mesh), 1e3 * least, "ms", 1e3 * predicted});
  report.add(
      {"  peak", static_cast<double>(stats.measured_peak_bytes), "B", static_cast<double>(stats.planned_peak_bytes)});
}

void run(Report& report) {
  const std::vector<PredictedModel> models = [] {
    std::vector<PredictedModel> all = {{&family_named("gpt"), "gpt_base", {}}, {&family_named("moe"), "moe_small", {}}};
    std::mt19937_64 random(absl::GetFlag(FLAGS_seed));
    for (int i = 0; i < 3; ++i) all.push_back(drawn(random));
    return all;
  }();
  for (const PredictedModel& m : models)
    for (const char* dtype : {"f32", "bf16"})
      for (const char* mesh : {"", "dp2", "fsdp2", "tp2", "ep2"})
        if (std::string_view(mesh) != "ep2" || has_field(m, "experts")) measure(report, m, dtype, mesh);
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  return weft::bench::run_benchmark(argc, argv, "prediction", "planned against measured steps", weft::bench::run);
}
