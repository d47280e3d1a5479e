// mesh_step: a training step on thread ranks beside the same step with the same batch on one rank with all cores, timed
// in turn. Reports by collective the ranks' waiting times and copied bytes.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "distributed/launch/compile.h"
#include "distributed/launch/world.h"
#include "framework/cli/cli.h"
#include "models/nn/transformer/language_model.h"
#include "tools/bench/benchmark.h"
#include "tools/bench/model.h"
#include "weft.h"

ABSL_FLAG(std::string, config, "gpt_tiny", "gpt_tiny, gpt_base or moe_small");
ABSL_FLAG(std::string, mesh, "dp8", "the mesh: \"fsdp2,tp2\"");
ABSL_FLAG(int64_t, batch, 16, "sequences in a step, over all ranks");
ABSL_FLAG(int32_t, rounds, 20, "steps of each side");
ABSL_FLAG(bool, bucket, true, "merge small collectives");
ABSL_FLAG(bool, overlap, true, "start collectives early and wait for them late");
ABSL_FLAG(bool, show_plan, false, "print the plan");

namespace weft::bench {
namespace {

using MeshFunction = std::function<Tensor(const Tensor&, const Tensor&)>;

class MeasuredStep {
 public:
  MeasuredStep(const std::string& config, const CompileOptions& options)
      : model_(make_decoder(config).model),
        opt_(model_->parameters(), {.lr = 1e-3}),
        step_(dist::compile(MeshFunction([this](const Tensor& tokens, const Tensor& targets) {
                              Tensor loss = model_->loss(tokens, targets).loss;
                              opt_.step(grad(loss, model_->parameters()));
                              return loss;
                            }),
                            options)) {}
  MeasuredStep(const MeasuredStep&) = delete;
  double step(const Tensor& tokens, const Tensor& targets) {
    const auto begin = Clock::now();
    loss_ = step_(tokens, targets).template item<float>();
    return seconds_since(begin);
  }
  float loss() const { return loss_; }
  Tensor tokens(int64_t batch) const { return randint(0, model_->vocab(), {batch, model_->context()}); }
  const Compiled<MeshFunction>& compiled() const { return step_; }

 private:
  std::shared_ptr<nn::LanguageModel> model_;
  optim::AdamW opt_;
  Compiled<MeshFunction> step_;
  float loss_ = 0;
};

void run(Report& report) {
  const std::string config = absl::GetFlag(FLAGS_config);
  const int64_t batch = absl::GetFlag(FLAGS_batch);
  const dist::Mesh mesh = dist::Mesh::parse(absl::GetFlag(FLAGS_mesh), {});
  if (mesh.size() < 2) usage_error("--mesh has one rank; need two or more");
  const dist::CommunicationOptions communication{.bucket = absl::GetFlag(FLAGS_bucket),
                                                 .overlap = absl::GetFlag(FLAGS_overlap)};
  manual_seed(0);
  MeasuredStep one(config, {});
  manual_seed(0);
  MeasuredStep ranks(
      config, {.mesh = mesh, .communication = std::make_shared<const dist::CommunicationOptions>(communication)});
  std::vector<double> alone, together;
  for (int i = 0; i < absl::GetFlag(FLAGS_rounds) + 2 && !interrupted(); ++i) {
    const Tensor tokens = one.tokens(batch), targets = one.tokens(batch);
    const double a = one.step(tokens, targets), b = ranks.step(tokens, targets);
    if (i == 1) ranks.compiled().world().clear_statistics();
    if (i < 2) continue;
    alone.push_back(a);
    together.push_back(b);
  }
  if (absl::GetFlag(FLAGS_show_plan)) std::printf("%s\n", ranks.compiled().report().c_str());
  std::vector<double> ratios;
  for (size_t i = 0; i < alone.size(); ++i) ratios.push_back(together[i] / alone[i]);
  std::printf("of %zu steps, of the average rank:\n%s", together.size(), ranks.compiled().world().statistics().c_str());
  const dist::PlanReport plan = ranks.compiled().plan();
  for (const std::string& note : plan.notes()) std::printf("%s\n", note.c_str());
  report.fact("config", config);
  report.fact("mesh", mesh.to_string());
  report.fact("batch", std::to_string(batch));
  report.add({"one_rank", median(alone) * 1e3, "ms"});
  report.add({"ranks", median(together) * 1e3, "ms", kNone, median(alone) * 1.15e3});
  report.add({"fastest_one_rank", *std::min_element(alone.begin(), alone.end()) * 1e3, "ms"});
  report.add({"fastest_ranks", *std::min_element(together.begin(), together.end()) * 1e3, "ms"});
  report.add({"ratio_of_a_round", median(ratios), "", kNone, 1.15});
  report.add({"loss_one_rank", one.loss(), ""});
  report.add({"loss_ranks", ranks.loss(), ""});
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  return weft::bench::run_benchmark(
      argc, argv, "mesh_step", "Times a training step on thread ranks beside the same step on one.", weft::bench::run);
}
