// launch: runs a program once for each rank of a job on this host.
#include <algorithm>
#include <thread>

#include "distributed/control/identity.h"
#include "distributed/launch/launcher.h"
#include "framework/base/str_cat.h"
#include "framework/cli/cli.h"
#include "framework/io/file.h"

namespace {

// The number of leading arguments that are flags of this program, each with its value.
int own_arguments(int argc, char** argv) {
  int n = 1;
  while (n < argc && argv[n][0] == '-') {
    const std::string a = argv[n];
    if (a == "--") return n;
    const bool alone = a == "--help" || a == "-h" || a == "-help" || a.find('=') != a.npos;
    n += alone ? 1 : 2;
  }
  return std::min(n, argc);
}

}  // namespace

int main(int argc, char** argv) {
  int64_t processes = 0, restarts = 0;
  const weft::Flags flags{
      {"nproc", &processes, "processes, each one rank; 0: one for each core", {0, 4096}},
      {"restarts", &restarts, "how often the job is started again after a failure", {0, 1000}},
  };
  const int own = own_arguments(argc, argv);
  std::vector<std::string> command(argv + own, argv + argc);
  if (!command.empty() && command[0] == "--") command.erase(command.begin());
  const auto body = [&] {
    if (command.empty())
      weft::usage_error("no program; need a program after the flags: launch --nproc 4 PROGRAM ARGUMENTS");
    // Each process would start its own job.
    const weft::control::Identity id = weft::control::identity_of(weft::control::environment());
    if (id.world > 1)
      weft::usage_error(weft::str_cat(id.source, " has started ", id.world,
                                      " processes of launch, but one launch starts all processes of a host; need ",
                                      id.source, " to start PROGRAM itself, which joins the job"));
    std::string& program = command[0];
    if (program.starts_with("//"))
      weft::usage_error(
          weft::str_cat("PROGRAM is the target ", program, "; need its file, such as out/bin/models/gpt/train"));
    if (program.find('/') != program.npos) program = weft::io::resolve_path(program);  // else it is found by PATH
    if (processes == 0) processes = static_cast<int64_t>(std::thread::hardware_concurrency());
    return weft::dist::launch({.processes = static_cast<int>(processes),
                               .command = command,
                               .name = "launch",
                               .restarts = {.most = restarts, .after_errors = true}})
        .code;
  };
  return weft::run_program(own, argv,
                           "Runs a program once for each rank of a job on this host: launch [flags] PROGRAM ARGUMENTS. "
                           "The programs //models "
                           "join the job; with --restarts, give them --resume.",
                           flags, body);
}
