// replan: the cost of a new sequence length for a compiled training step whose kernels are all in memory: capture,
// passes and plan. Measures processor time of the calling thread, which other programs do not affect.
#include <time.h>

#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "models/nn/transformer/language_model.h"
#include "tools/bench/benchmark.h"
#include "tools/bench/model.h"
#include "weft.h"

ABSL_FLAG(std::string, config, "gpt_base", "gpt_tiny, gpt_base or moe_small");
ABSL_FLAG(int32_t, lengths, 12, "new lengths to plan for");

namespace weft::bench {
namespace {

double thread_ms() {
  timespec t;
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
}

void run(Report& report) {
  const std::string config = absl::GetFlag(FLAGS_config);
  const Decoder decoder = make_decoder(config);
  const nn::LanguageModel& model = *decoder.model;
  optim::AdamW opt(model.parameters(), {.lr = 1e-3});
  auto step = compile([&](const Tensor& tokens, const Tensor& targets) {
    Tensor loss = model.loss(tokens, targets).loss;
    opt.step(grad(loss, model.parameters()));
    return loss;
  });
  std::vector<double> times;
  int64_t compiled = 0;
  for (int i = 0; i <= absl::GetFlag(FLAGS_lengths); ++i) {
    const Tensor tokens = randint(0, model.vocab(), {decoder.batch, model.context() - i});
    const double begin = thread_ms();
    step.prepare(tokens, tokens);
    if (i == 0) {
      compiled = step.stats().compilations;
      continue;
    }
    times.push_back(thread_ms() - begin);
  }
  report.fact("config", config);
  report.add({"replan_median", median(times), "ms", kNone, 30});
  report.add({"kernels_compiled_for_new_lengths", static_cast<double>(step.stats().compilations - compiled), ""});
  std::printf("%s", step.report().substr(0, step.report().find("memory\n")).c_str());
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  return weft::bench::run_benchmark(
      argc, argv, "replan", "Times the planning of a compiled step for new sequence lengths.", weft::bench::run);
}
