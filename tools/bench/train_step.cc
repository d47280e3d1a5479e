// train_step: a training step (forward, backward, AdamW) on random data; pytorch/train_step.py does the same work.
// --serve: each line of standard input is a number of steps to run now, and the answer is one line of JSON, until
// the end of input. versus_pytorch.py uses it to time two programs in turn.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "compiler/cost/machine/rates.h"
#include "framework/base/thread_pool.h"
#include "framework/cli/cli.h"
#include "framework/io/json.h"
#include "tools/bench/benchmark.h"
#include "tools/bench/step_model.h"
#include "tools/profile/profile_text.h"
#include "weft.h"

ABSL_FLAG(std::string, config, "gpt_tiny", "gpt_tiny, gpt_base, moe_small, resnet or lstm");
ABSL_FLAG(std::string, dtype, "f32", "f32 or bf16: the dtype of activations; master weights are f32");
ABSL_FLAG(bool, compile, true, "capture the step and replay its plan; false: eagerly");
ABSL_FLAG(int64_t, memory_budget, 0,
          "memory limit of the plan in bytes; values that do not fit are recomputed; 0: no limit");
ABSL_FLAG(int32_t, steps, 0, "steps to run; 0: steps of about 20 seconds in all");
ABSL_FLAG(bool, profile, false, "also print the time of each kernel and of each class of work (compiled steps only)");
ABSL_FLAG(bool, report, false, "print the compiler's report after the first step, and stop");
ABSL_FLAG(bool, bound, true, "measure the machine's GEMM rate for the bound (takes a few seconds)");
ABSL_FLAG(bool, serve, false, "run the numbers of steps read from standard input");

namespace weft::bench {
namespace {

class BenchTrainer {
 public:
  BenchTrainer(StepModel model, DType dtype, const CompileOptions& options)
      : model_(std::move(model)),
        opt_(model_.module->parameters(), {.lr = 1e-3}),
        step_(weft::compile(TrainFunction([this, dtype](const Tensor& x, const Tensor& y) {
                              Tensor loss = model_.loss(x, y, dtype);
                              opt_.minimize(loss);
                              return loss;
                            }),
                            options)) {}
  BenchTrainer(const BenchTrainer&) = delete;

  /// Seconds of one step on a new random batch, without the time to make it.
  double step() {
    const auto [x, y] = model_.batch();
    const auto begin = Clock::now();
    loss_ = step_(x, y).template item<float>();
    return seconds_since(begin);
  }
  float loss() const { return loss_; }
  const StepModel& model() const { return model_; }
  int64_t parameters() const { return model_.module->num_parameters(); }
  CompileStats stats() const { return step_.stats(); }
  std::string report() const { return step_.report(); }
  /// The record with the work that the values of one more step need.
  StepRecord record() {
    step_.count_work();
    step();
    return step_.record();
  }

 private:
  using TrainFunction = std::function<Tensor(const Tensor&, const Tensor&)>;
  StepModel model_;
  optim::AdamW opt_;
  Compiled<TrainFunction> step_;
  float loss_ = 0;
};

void serve(BenchTrainer& trainer, double first_done) {
  auto say = [](const io::OrderedJson& json) { std::cout << io::write_json(json) << std::endl; };
  say({{"first_step_s", first_done}, {"parameters", trainer.parameters()}, {"threads", num_threads()}});
  for (int steps = 0; std::cin >> steps;) {
    io::OrderedJson ms = io::OrderedJson::array();
    for (int i = 0; i < steps; ++i) ms.push_back(trainer.step() * 1e3);
    const CompileStats stats = trainer.stats();
    say({{"ms", ms},
         {"loss", trainer.loss()},
         {"flops", trainer.model().step_flops()},
         {"compile_s", stats.compile_seconds},
         {"planned_peak_bytes", stats.planned_peak_bytes},
         {"measured_peak_bytes", stats.measured_peak_bytes},
         {"peak_rss_mb", peak_resident_bytes() / 1e6}});
  }
}

void run(Report& report) {
  const std::string config = absl::GetFlag(FLAGS_config), dtype_name = absl::GetFlag(FLAGS_dtype);
  if (dtype_name != "f32" && dtype_name != "bf16") usage_error("--dtype is '" + dtype_name + "'; need f32 or bf16");
  const bool compiled = absl::GetFlag(FLAGS_compile), profile = absl::GetFlag(FLAGS_profile);
  if (profile && !compiled) usage_error("--profile needs --compile=true");
  manual_seed(0);
  StepModel model;
  as_usage_error("", [&] { model = make_step_model(config); });
  BenchTrainer trainer(std::move(model), parse_dtype(dtype_name),
                       {.enabled = compiled, .memory_budget = absl::GetFlag(FLAGS_memory_budget)});
  const double first = trainer.step(), first_done = process_age(), first_loss = trainer.loss();
  if (absl::GetFlag(FLAGS_report)) {
    for (int i = 0; i < 4; ++i) trainer.step();  // these steps are timed
    std::printf("%s", trainer.report().c_str());
    return;
  }
  if (absl::GetFlag(FLAGS_serve)) {
    serve(trainer, first_done);
    return;
  }

  int steps = absl::GetFlag(FLAGS_steps);
  std::vector<double> times = {trainer.step()};
  if (steps <= 0) steps = std::clamp(static_cast<int>(20 / times[0]), 10, 400);
  while (static_cast<int>(times.size()) < steps && !interrupted()) times.push_back(trainer.step());
  times.erase(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(std::min<size_t>(3, times.size() / 4)));
  const double step = median(times), items = static_cast<double>(trainer.model().items);
  const double rss = peak_resident_bytes();

  report.fact("config", config);
  report.fact("dtype", dtype_name);
  report.fact("compile", compiled ? "true" : "false");
  report.fact("parameters", std::to_string(trainer.parameters()));
  report.fact("steps", std::to_string(times.size()));
  const double flops = trainer.model().step_flops();
  double rate = kNone;
  if (absl::GetFlag(FLAGS_bound)) {
    rate = rates_of(Device::cpu()).products_of(parse_dtype(dtype_name)) / 1e9;
  }
  report.add({"step_median", step * 1e3, "ms", flops / rate * 1e-6});
  report.add({"step_fastest", *std::min_element(times.begin(), times.end()) * 1e3, "ms", flops / rate * 1e-6});
  report.add({"throughput", items / step, config == "resnet" ? "images/s" : "tokens/s"});
  report.fact("flops", "model FLOPs: 3 x the products of the forward pass");
  report.add({"arithmetic", flops / step * 1e-9, "GFLOP/s", rate});
  report.add({"first_step", first, "s"});
  report.add({"start_to_first_step", first_done, "s"});
  report.add({"start_less_one_step", first_done - step, "s", kNone, 1.5});
  if (compiled) {
    const CompileStats stats = trainer.stats();
    report.add({"capture_and_plan", stats.compile_seconds, "s"});
    report.add({"kernels_compiled", static_cast<double>(stats.compilations), ""});
    report.add({"nodes", static_cast<double>(stats.nodes), ""});
    report.add({"launches", static_cast<double>(stats.kernels), ""});
    report.add({"launches_that_copy", static_cast<double>(stats.copies), ""});
    report.add({"planned_peak", static_cast<double>(stats.planned_peak_bytes) / 1e6, "MB"});
    report.add({"measured_peak", static_cast<double>(stats.measured_peak_bytes) / 1e6, "MB"});
  }
  report.add({"peak_resident", rss / 1e6, "MB"});
  report.add({"first_loss", first_loss, ""});
  report.add({"last_loss", trainer.loss(), ""});
  if (profile) {
    StepRecord record = trainer.record();
    record.step_us = *std::min_element(times.begin(), times.end()) * 1e6;
    const double products = record.sum(WorkClass::kContraction).measured_us / 1e3;
    report.add({"in_products", products, "ms", flops / rate * 1e-6});
    report.add({"products_done", record.sum().work.products * 1e-9, "GFLOP"});
    report.add({"products_of_the_model", flops * 1e-9, "GFLOP"});
    report.add({"in_the_rest", record.sum().measured_us / 1e3 - products, "ms"});
    std::printf("\n%s\n%s", profiler::rows_text(record, profiler::By::kKernel).c_str(),
                profiler::parts_text(record).c_str());
  }
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  return weft::bench::run_benchmark(argc, argv, "train_step",
                                    "Times the training step of gpt_tiny, gpt_base, moe_small, resnet or lstm.",
                                    weft::bench::run);
}
