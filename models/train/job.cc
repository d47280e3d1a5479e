#include "models/train/job.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "distributed/launch/launcher.h"
#include "framework/base/thread_pool.h"
#include "framework/io/file.h"

namespace weft::train {
namespace {

std::vector<std::string> own_command() {
  std::ifstream file("/proc/self/cmdline");
  std::vector<std::string> command;
  for (std::string argument; std::getline(file, argument, '\0');) command.push_back(argument);
  WEFT_CHECK_AS(kFailedPrecondition, !command.empty(), "--ranks processes: /proc/self/cmdline is not readable");
  return command;
}

int launch(const TrainOptions& o) {
  std::vector<std::string> command = own_command();
  const std::string name = command[0].substr(command[0].rfind('/') + 1);
  std::fflush(stdout);
  return dist::launch({.processes = o.step.mesh.size(),
                       .command = std::move(command),
                       .program = std::filesystem::read_symlink("/proc/self/exe").string(),
                       .name = name,
                       .keep = o.checkpoint_dir.empty() ? "" : io::resolve_path(o.checkpoint_dir)})
      .code;
}

// Flags whose values may differ between processes: those of the machine, of files that only the first one writes, and
// another name of a flag.
bool may_differ(const std::string& flag) {
  for (const char* name :
       {"threads", "kernel_cache", "microbatches", "metrics", "profile_out", "save_plan", "show_plan"})
    if (flag == name) return true;
  return false;
}

std::vector<std::pair<std::string, std::string>> facts_of(const TrainOptions& o) {
  TrainOptions copy = o;
  std::vector<std::pair<std::string, std::string>> facts;
  for (const Flag& flag : train_flags(copy))
    if (!may_differ(flag.name)) facts.emplace_back("--" + flag.name, flag_text(flag));
  return facts;
}

// A process has a share of the cores of its host, as threads that are ranks have.
void share_cores(const control::Identity& id) {
  const auto cores = static_cast<int64_t>(num_threads());
  const int64_t all = id.local_world > 0 ? id.local_world : 1;
  set_num_threads(
      static_cast<int>(std::max<int64_t>(1, cores * (id.local_rank + 1) / all - cores * id.local_rank / all)));
}

void close_output() {
  const int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
  WEFT_CHECK_AS(kFailedPrecondition, nothing >= 0 && dup2(nothing, STDOUT_FILENO) >= 0,
                "/dev/null: ", std::strerror(errno));
  close(nothing);
}

}  // namespace

Part join_or_launch(const TrainOptions& o) {
  if (dist::Processes::current()) return {};
  const int ranks = o.step.mesh.size();
  const control::Identity id = control::identity_of(control::environment());
  const bool job = id.world > 1 || id.source == "launch";
  const std::string started = str_cat(id.source, " has started ", id.world, " processes of this program");
  check_flag("mesh", !job || ranks > 1, "none", str_cat("a mesh with a rank for each: ", started));
  check_flag("ranks", !job || o.ranks == "processes", str_cat("'", o.ranks, "'"), str_cat("processes: ", started));
  check_flag("mesh", !job || ranks % id.world == 0, str_cat(o.step.mesh.to_string(), ", which has ", ranks, " ranks"),
             str_cat("a multiple of ", id.world, " ranks: ", started));
  if (o.ranks != "processes" || ranks == 1) return {};
  if (!job) return {launch(o), nullptr};
  dist::MembershipOptions options;
  options.ranks = ranks;
  options.facts = facts_of(o);
  options.timeout = std::chrono::nanoseconds(static_cast<int64_t>(o.step.timeout * 1e9));
  options.transport = o.transport;
  Part part{{}, std::make_unique<dist::Membership>(id, options)};
  if (o.threads == 0) share_cores(id);
  if (id.rank > 0) close_output();
  return part;
}

}  // namespace weft::train
