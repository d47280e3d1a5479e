#include "models/train/job.h"

#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
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

int number_in(const char* variable) {
  const char* const text = std::getenv(variable);
  int value = -1;
  if (text) std::from_chars(text, text + std::strlen(text), value);
  WEFT_CHECK(value >= 0, "--ranks processes: ", variable, " is '", text ? text : "", "'; need a whole number");
  return value;
}

}  // namespace

std::optional<int> join_or_launch(const TrainOptions& o) {
  const int ranks = o.step.mesh.size();
  if (dist::Processes::current()) return {};
  const char* const store = std::getenv("JOB_STORE");
  check_flag("ranks", !store || (o.ranks == "processes" && ranks > 1), str_cat("'", o.ranks, "'"),
             "processes, and --mesh with a rank for each: a launcher has started this process");
  if (o.ranks != "processes" || ranks == 1) return {};
  if (!store) {
    std::vector<std::string> command = own_command();
    const std::string name = command[0].substr(command[0].rfind('/') + 1);
    std::fflush(stdout);
    return dist::launch({.processes = ranks,
                         .command = std::move(command),
                         .program = std::filesystem::read_symlink("/proc/self/exe").string(),
                         .name = name,
                         .keep = o.checkpoint_dir.empty() ? "" : io::resolve_path(o.checkpoint_dir)})
        .code;
  }
  const int rank = number_in("RANK"), size = number_in("WORLD_SIZE");
  WEFT_CHECK(size == ranks, "--mesh ", o.step.mesh.to_string(), " has ", ranks, " ranks, and the job has ", size,
             " processes; need as many");
  dist::FolderStore folder(store);
  const auto timeout = std::chrono::nanoseconds(static_cast<int64_t>(o.step.timeout * 1e9));
  dist::Processes::set_current(std::make_unique<dist::Processes>(folder, size, rank, 1, timeout, o.transport));
  // A rank has a share of the cores, as threads that are ranks have.
  if (o.threads == 0) {
    const int cores = num_threads();
    set_num_threads(std::max(1, cores * (rank + 1) / size - cores * rank / size));
  }
  if (rank > 0) {
    const int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
    WEFT_CHECK_AS(kFailedPrecondition, nothing >= 0 && dup2(nothing, STDOUT_FILENO) >= 0,
                  "/dev/null: ", std::strerror(errno));
    close(nothing);
  }
  return {};
}

}  // namespace weft::train
