#include "models/train/run_text.h"

#include <cmath>
#include <cstdio>

#include "distributed/launch/gathered_trace.h"
#include "distributed/launch/processes.h"
#include "distributed/plan/plan_text.h"
#include "framework/base/cpu.h"
#include "framework/base/failure_report.h"
#include "framework/base/thread_pool.h"
#include "framework/base/units.h"
#include "framework/io/file.h"
#include "models/train/diloco.h"

namespace weft::train {

std::map<std::string, std::string> run_flags(const TrainOptions& o, const Setup& setup, const nn::ModelFamily& family,
                                             const std::string& tokenizer) {
  std::map<std::string, std::string> run{{"data", o.data},
                                         {"steps", str_cat(o.steps)},
                                         {"batch_size", str_cat(o.batch_size)},
                                         {"seq_len", str_cat(o.seq_len)},
                                         {"lr", str_cat(o.lr)},
                                         {"warmup", str_cat(o.warmup)},
                                         {"microbatches", str_cat(o.asked_microbatches)},
                                         {"dtype", o.dtype},
                                         {"seed", str_cat(o.seed)}};
  TrainOptions copy = o;
  if (setup.outer)
    for (const Flag& flag : diloco_flags(copy))
      if (flag.name != "outer_rows") run.emplace(flag.name, flag_text(flag));  // a replica has its own
  if (!o.tokenizer.empty()) {
    run.emplace("tokenizer", o.tokenizer);
    run.emplace("tokenizer_name", tokenizer);
  }
  if (!setup.origin.source.empty()) return run;
  run.emplace("config", setup.config_name);
  const nn::ConfigMap preset = family.preset(setup.config_name);
  for (const auto& [field, value] : setup.config)  // for earlier versions; this one reads the model's fields
    if (preset.at(field) != value) run.emplace(field, value);
  return run;
}

void print_new_values(const std::map<std::string, std::string>& before, const std::map<std::string, std::string>& now) {
  for (const auto& [flag, value] : now)
    if (const auto at = before.find(flag); at != before.end() && !is_same_flag(flag, at->second, value))
      std::printf("note: --%s was '%s' and is now '%s'; the run continues with the new value\n", flag.c_str(),
                  at->second.c_str(), value.c_str());
}

void announce(const TrainOptions& o, const Setup& setup, const std::string& family, int64_t parameters, int64_t tokens,
              int64_t step) {
  std::printf("%s %s: %.2f M parameters, %s, %s\n", family.c_str(), setup.config_name.c_str(),
              static_cast<double>(parameters) * 1e-6, o.dtype.c_str(),
              setup.on_text ? str_cat(tokens, " tokens of text").c_str() : "random tokens");
  const int ranks = o.step.mesh.size();
  std::printf("%ld steps of %ld x %ld tokens on %d thread%s (%s)%s\n", o.steps, o.batch_size, o.seq_len, num_threads(),
              num_threads() == 1 ? "" : "s", str_cat(selected_isa()).c_str(),
              ranks > 1 ? str_cat(", ", ranks, " ranks as ", o.step.mesh.to_string()).c_str() : "");
  if (setup.outer) std::printf("%s\n", diloco_text(setup, o, parameters).c_str());
  if (step >= o.steps) std::printf("nothing left to do: step %ld is done; raise --steps above it to go on\n", step);
  std::fflush(stdout);
}

std::string nonfinite_text(const StepMetrics& m) {
  const bool norm = std::isfinite(m.loss);
  return str_cat("step ", m.step, ": the ", norm ? "gradient norm" : "loss", " is ", norm ? m.grad_norm : m.loss,
                 " and nothing was changed; ");
}

void report_plan(const dist::PlanReport& report, const TrainOptions& o, const Setup& setup, int64_t memory_bytes) {
  if (setup.saved_hash != 0 && setup.saved_hash != report.hash())
    std::printf(
        "note: %s was saved for another step or other settings; its placements are used, its collectives may "
        "differ\n",
        o.plan.c_str());
  if (!o.save_plan.empty() && dist::is_first()) dist::save_plan(report, io::resolve_path(o.save_plan));
  if (o.show_plan) std::printf("%s\n", report.to_string().c_str());
  const int copies = o.checkpoint_async + (memory_bytes > 0);
  if (o.show_plan && copies > 0) {
    int64_t cells = 0;
    for (const dist::PlannedCell& c : report.cells()) cells += c.bytes;
    std::printf("peak memory of a rank during saves: %s (--checkpoint_async, --memory_every: its cells %d times)\n",
                bytes_text(static_cast<double>(report.peak_bytes() + copies * cells)).c_str(), copies + 1);
  }
  if (o.show_plan && memory_bytes > 0)
    std::printf("states in memory of the host: %s (--memory_every: the newest two)\n",
                bytes_text(static_cast<double>(memory_bytes)).c_str());
  std::fflush(stdout);
}

void save_profile(const Profile& mine, const TrainOptions& o, const Setup& setup, int64_t last, Progress& progress) {
  const Profile profile(dist::gather_traces(mine.trace()), mine.steps());
  if (!dist::is_first()) return;
  try {
    const std::string path = io::resolve_path(o.profile_out);
    profile.save(path);
    std::string summary = profile.summary();
    summary.pop_back();  // the end of its last line
    progress.note(str_cat("profile of steps ", setup.profile_first, "-", last, ": ", path, "\n", summary));
  } catch (const Error& e) {
    internal::warn(str_cat("--profile_out: ", e.what()));
  }
}

}  // namespace weft::train
