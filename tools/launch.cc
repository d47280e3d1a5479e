// launch: runs a program once for each rank of a job on this host, or serves replicas.
#include <algorithm>
#include <chrono>
#include <thread>

#include "distributed/control/address.h"
#include "distributed/control/group/group_server.h"
#include "distributed/control/identity.h"
#include "distributed/control/service/token.h"
#include "distributed/launch/launcher.h"
#include "framework/base/str_cat.h"
#include "framework/cli/cli.h"
#include "framework/io/file.h"

namespace {

// The parts of this program, for its flags.
enum : unsigned { kJob = 1, kService = 2 };

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

// The service of replicas, until a signal. It can be killed and started again at any time.
int serve(const weft::control::GroupServerOptions& options) {
  weft::watch_interrupts();
  const weft::control::GroupServer server(options);
  weft::write_output(
      weft::str_cat("service of replicas at ", server.address(), ", view ", server.status().view.number, "\n"));
  while (!weft::interrupted()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  return weft::interrupted_code();
}

}  // namespace

int main(int argc, char** argv) {
  int64_t processes = 0, restarts = 0, replicas = 1, replicas_min = 1;
  std::string address, token_file;
  weft::File journal{.use = weft::File::Use::kWrite};
  const weft::PartFlags flags(
      {"a job", "--serve"},
      {{{"nproc", &processes, "processes, each one rank; 0: one for each core", {0, 4096}}, kJob},
       {{"restarts", &restarts, "how often the job is started again after a failure", {0, 1000}}, kJob},
       {{"serve", &address, "runs no program, but the service of replicas at this address, host:port"}, kService},
       {{"journal", &journal, "with --serve: the file of its views; it continues from this file"}, kService},
       {{"replicas", &replicas, "with --serve: replicas that train together; further ones wait", {1, 4096}}, kService},
       {{"replicas_min", &replicas_min, "with --serve: replicas without which the others wait", {1, 4096}}, kService},
       {{"token_file", &token_file, "with --serve: a file with the token; otherwise REPLICAS_TOKEN has the token"},
        kService}});
  const int own = own_arguments(argc, argv);
  std::vector<std::string> command(argv + own, argv + argc);
  if (!command.empty() && command[0] == "--") command.erase(command.begin());
  const auto body = [&] {
    flags.check(address.empty() ? kJob : kService);
    if (!address.empty()) {
      weft::check_flag("serve", command.empty(), command.empty() ? "" : "the program " + command[0],
                       "no program: start the replicas apart, with REPLICAS=ADDRESS");
      weft::as_usage_error("--", [&] { (void)weft::control::parse_address(address, "serve", /*listens=*/true); });
      weft::check_flag("replicas_min", replicas_min <= replicas, weft::str_cat(replicas_min),
                       weft::str_cat("at most ", replicas, ", the value of --replicas"));
      const std::string token = weft::control::take_token("REPLICAS_TOKEN");
      return serve({.address = address,
                    .token = token_file.empty() ? token : weft::control::token_of_file(token_file),
                    .journal = journal.path,
                    .replicas = replicas,
                    .replicas_min = replicas_min});
    }
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
                           "The programs //models join the job; with --restarts, give them --resume. --serve ADDRESS "
                           "is the service of replicas; each replica is a job of its own.",
                           flags.flags(), body);
}
