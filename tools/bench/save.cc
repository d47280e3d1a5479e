// save: how long training stands still for a checkpoint, blocking and asynchronous in turn, and how much longer the
// next step and the steps during the write take. Ranks of --mesh are processes.
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "distributed/launch/compile.h"
#include "distributed/launch/job.h"
#include "distributed/launch/processes.h"
#include "framework/cli/cli.h"
#include "framework/dispatch/rank/first_process.h"
#include "framework/io/file.h"
#include "models/nn/transformer/language_model.h"
#include "models/train/checkpoint.h"
#include "tools/bench/benchmark.h"
#include "tools/bench/model.h"
#include "weft.h"

ABSL_FLAG(std::string, dir, "", "folder for the checkpoints, on the file system to measure; it is removed at the end");
ABSL_FLAG(std::string, config, "gpt_base", "gpt_tiny, gpt_base or moe_small");
ABSL_FLAG(std::string, mesh, "", "the mesh: \"fsdp2\"; empty: one process");
ABSL_FLAG(int64_t, batch, 2, "sequences in a step, over all ranks");
ABSL_FLAG(int64_t, length, 64, "tokens in a sequence");
ABSL_FLAG(int32_t, rounds, 10, "saves of each kind, after one that is not counted");

namespace weft::bench {
namespace {

using MeshFunction = std::function<Tensor(const Tensor&, const Tensor&)>;

struct SaveTimes {
  std::vector<double> stalls, next, during;  // seconds: stands still, the step after begin, later steps until the end
};

void run(Report& report) {
  const std::string dir = io::resolve_path(absl::GetFlag(FLAGS_dir));
  if (dir.empty() || io::exists(dir)) usage_error("--dir: got '" + dir + "'; need a new folder");
  const dist::Mesh mesh = dist::Mesh::parse(absl::GetFlag(FLAGS_mesh), {});
  std::optional<dist::Job> job;
  if (mesh.size() > 1) job.emplace(dist::JobOptions{.ranks = mesh.size()});
  if (job && job->code()) {
    if (*job->code() != 0) internal::fail(Code::kAborted, "a rank has failed");
    return;
  }
  manual_seed(0);
  const std::shared_ptr<nn::LanguageModel> model = make_decoder(absl::GetFlag(FLAGS_config)).model;
  optim::AdamW optimizer(model->parameters(), {.lr = 1e-3});
  auto step = dist::compile(MeshFunction([&](const Tensor& tokens, const Tensor& targets) {
                              const Tensor loss = model->loss(tokens, targets).loss;
                              optimizer.minimize(loss);
                              return loss;
                            }),
                            {.mesh = mesh});
  const Shape shape{absl::GetFlag(FLAGS_batch), absl::GetFlag(FLAGS_length)};
  const auto timed = [](const auto& fn) {
    const auto begin = Clock::now();
    fn();
    return seconds_since(begin);
  };
  const auto one_step = [&] {
    const Tensor tokens = randint(0, model->vocab(), shape), targets = randint(0, model->vocab(), shape);
    return timed([&] { static_cast<void>(step(tokens, targets).item<float>()); });
  };
  const auto any = [](bool mine) {
    internal::JobProcesses* const processes = internal::job_processes();
    return processes ? processes->any("a save that is measured", mine) : mine;
  };
  int64_t saves = 0;
  // Saves once, and makes steps until the save is complete, or four.
  const auto save = [&](AsyncSave::Pace pace, SaveTimes& times) {
    std::unique_ptr<AsyncSave> pending;
    const bool waits = pace == AsyncSave::Pace::kFull;
    double stall = timed([&] {
      pending = train::begin_checkpoint(dir, {.step = ++saves, .family = "bench"}, model->named_cells(),
                                        optimizer.named_cells(), /*keep=*/2, nullptr, {}, pace);
      if (waits) pending->wait();
    });
    times.next.push_back(one_step());
    for (int steps = 1; steps < 4 || !pending->complete(); ++steps) {
      if (!pending->complete() && !any(pending->busy())) stall += timed([&] { pending->advance(); });
      const bool writes = !pending->complete();
      const double seconds = one_step();
      if (writes) times.during.push_back(seconds);
    }
    times.stalls.push_back(stall);
  };
  std::vector<double> steps;
  for (int i = 0; i < 3; ++i) one_step();
  SaveTimes blocking, async;
  for (int i = 0; i <= absl::GetFlag(FLAGS_rounds) && !any(interrupted()); ++i) {
    if (i == 1) blocking = async = {};  // the first save of each kind takes new memory
    for (int s = 0; s < 4; ++s) steps.push_back(one_step());
    save(AsyncSave::Pace::kFull, blocking);
    save(AsyncSave::Pace::kYield, async);
  }
  if (!dist::is_first()) return;
  const double plain = median(steps);
  report.fact("config", absl::GetFlag(FLAGS_config));
  report.fact("mesh", mesh.size() > 1 ? mesh.to_string() : "one process");
  int64_t bytes = 0;
  for (const std::string& name : io::list_folder(str_cat(dir, "/step_", saves)))
    bytes += io::file_size(str_cat(dir, "/step_", saves, "/", name));
  report.add({"checkpoint", static_cast<double>(bytes) / 1e6, "MB"});
  report.add({"step", plain * 1e3, "ms"});
  report.add({"blocking: stands still", median(blocking.stalls) * 1e3, "ms"});
  report.add({"asynchronous: stands still", median(async.stalls) * 1e3, "ms", kNone,
              std::max(0.5, plain * 10)});  // 0.5 ms or 1 % of a step
  report.add({"blocking: next step", median(blocking.next) / plain, "x"});
  report.add({"asynchronous: next step", median(async.next) / plain, "x", kNone, 1.1});
  if (!async.during.empty())
    report.add({"asynchronous: steps while it writes", median(async.during) / plain, "x", kNone, 1.1});
  io::remove_all(dir);
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  return weft::bench::run_benchmark(argc, argv, "save", "Times checkpoints and the steps beside them.",
                                    weft::bench::run);
}
