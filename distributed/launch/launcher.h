// The processes of a job on this host: starts them, shows what they print, and ends all when one fails.
#pragma once
#include <string>
#include <vector>

namespace weft::dist {

struct LaunchOptions {
  int processes = 1;
  std::vector<std::string> command;  // program and arguments
  std::string program;               // path of the program; empty: that of command[0], looked for in PATH
  std::string name;                  // of the launching program, for messages
  std::string keep;                  // the folder that gets the flight records of a failed job; empty: TMPDIR
};

struct Launched {
  int code = 0;        // of the process that failed first, 128 + the number of a signal that killed it, or 0
  bool asked = false;  // a signal to the launcher or to a rank asked the processes to end
};

/// Runs the command once for each process, with RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, JOB_STORE, a folder for
/// FolderStore, and JOB_TOKEN, a new secret, in its environment. Standard output of rank 0 is the launcher's; each line
/// that another rank prints begins with "rank N: ". A line on standard error that another rank has printed is not shown
/// again. SIGINT, SIGTERM and SIGHUP go to all processes. No process outlives the launcher.
///
/// When the ranks of a job wait for one of them for more than 2 s, a line on standard error says for which, in which
/// collective, and what it does; another line says when the job goes on (watch.h).
///
/// When a process fails, the others have a few seconds to end; then they are ended, or at once if all of them are
/// stopped. A line on standard error names the process that failed first, how, and its last message. Behind it there is
/// the diagnosis, which may name another process, if the ranks have left flight records (JOB_FLIGHT,
/// framework/dispatch/flight.h) that show a fault. If all fail with one message, there is this message, and the
/// diagnosis only if it says more than that a rank failed. Call before this process has threads. Throws if a process
/// cannot be started.
Launched launch(const LaunchOptions& options);

}  // namespace weft::dist
