#include "models/train/elastic.h"

#include <chrono>
#include <thread>

#include "distributed/diloco/diloco_replica.h"
#include "distributed/launch/processes.h"
#include "distributed/placement/replica.h"
#include "distributed/replica/replica_run.h"
#include "framework/base/error.h"
#include "framework/base/failure_report.h"
#include "framework/io/file.h"
#include "models/data/dataset.h"
#include "models/train/job.h"

namespace weft::train {

std::vector<std::pair<std::string, std::string>> run_facts(const TrainOptions& o,
                                                           const std::map<std::string, std::string>& flags) {
  std::vector<std::pair<std::string, std::string>> facts;
  const auto add = [&](const std::string& name, const std::string& value) { facts.emplace_back(name, value); };
  for (const auto& [name, value] : flags) add("--" + name, value);
  TrainOptions copy = o;
  for (const Flag& flag : train_flags(copy))
    for (const char* name : {"mesh", "numerics", "verify_numerics", "async_tp", "wire", "compile"})
      if (flag.name == name && (flag.name != "mesh" || o.diloco == 0)) add("--" + flag.name, flag_text(flag));
  const std::string path = o.data.empty() || o.data == "synthetic" ? o.data : io::resolve_path(o.data);
  add("the content of --data", data::data_identity(path));
  return facts;
}

// The step of the group of replicas that follows this state.
static int64_t group_step(const Setup& setup, const TrainState& state) {
  return setup.outer ? dist::DilocoReplica::group_step(*setup.outer, state.step) : state.step;
}

dist::ReplicaOptions replica_options(const Setup& setup, const TrainOptions& o, const TrainState& state,
                                     const std::map<std::string, std::string>& flags, const dist::Job& job) {
  std::string facts;
  for (const auto& [name, value] : dist::program_facts(run_facts(o, flags), o.diloco > 0))
    facts += dist::fact_line(name, value);
  return {.name = setup.replica->name,
          .address = setup.replica->address,
          .token = setup.replica->token,
          .incarnation = setup.replica->incarnation,
          .facts = facts,
          .own = o.diloco > 0 ? dist::own_values(dist::replica_mesh(o.step.mesh), setup.rows) : "",
          .replicas = dist::replica_count(o.step.mesh),
          .step = group_step(setup, state),
          .state_view = state.state_view,
          .ranks = dist::replica_mesh(o.step.mesh).size(),
          .job = dist::Processes::current(),
          .store = job.store(),
          .transport = o.transport,
          .timeout = std::chrono::nanoseconds(static_cast<int64_t>(o.step.timeout * 1e9))};
}

void check_replay(const Setup& setup, const TrainOptions& o, const TrainState& state,
                  const std::map<std::string, std::string>& flags) {
  setup.replay->check({group_step(setup, state), state.samples, state.state_view}, setup.outer ? 0 : setup.rows,
                      run_facts(o, flags));
  if (setup.outer)
    dist::DilocoReplica::check_replay(*setup.replay, *setup.outer,
                                      dist::own_values(dist::replica_mesh(o.step.mesh), setup.rows),
                                      o.step.verify_numerics);
}

bool take_folder(CheckpointSaver& saver, const Setup& setup, double seconds) {
  if (setup.checkpoint_every == 0 || saver.is_locked()) return true;
  for (const double end = now_seconds() + seconds;;) {
    try {
      (void)saver.lock();
      break;
    } catch (const Error& e) {
      if (e.code() != Code::kFailedPrecondition) throw;
      if (value_of_first(now_seconds() >= end)) {
        if (dist::is_first()) internal::warn(str_cat(e.what(), "; this replica writes no checkpoint until then"));
        return false;
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  check_shared(setup.dir);
  saver.set_saved(std::stoll(value_of_first(std::to_string(newest_step(setup.dir)))));
  return true;
}

}  // namespace weft::train
