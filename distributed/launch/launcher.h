// The processes of a job on this host: starts them, shows their output, and ends all when one fails.
#pragma once
#include <string>
#include <vector>

#include "distributed/launch/restarts.h"

namespace weft::dist {

struct LaunchOptions {
  int processes = 1;
  std::vector<std::string> command;  // program and arguments
  std::string program;               // path of the program; empty: command[0], searched in PATH
  std::string name;                  // name of the launching program, for messages
  RestartOptions restarts = {};
  std::string keep;  // the folder that gets the flight records of a failed job; empty: TMPDIR
};

struct Launched {
  int code = 0;        // exit code of the process that failed first, 128 + the signal that killed it, or 0
  bool asked = false;  // a signal to the launcher or to a rank asked the processes to end
};

/// Runs the command once for each process, with RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, JOB_STORE, a folder for
/// FolderStore, and JOB_TOKEN, a new secret, in its environment. Standard output of rank 0 is the launcher's; each line
/// that another rank prints begins with "rank N: ". A line on standard error is shown once, even if several ranks print
/// it. SIGINT, SIGTERM and SIGHUP go to all processes. No process outlives the launcher.
///
/// When ranks wait for one rank for more than 2 s, a line on standard error names this rank, its collective and its
/// activity; another line reports that the job continues (watch.h).
///
/// When a process fails, or has been stopped by a signal for 2 s, processes that have not joined yet read the cause in
/// the store (FolderStore::kEnded). The others have a few seconds to end before they are killed; if all are stopped,
/// they are killed at once. A line on standard error names the process that failed first, how it failed, and its last
/// message. The diagnosis, which may name another process, follows if the flight records (JOB_FLIGHT,
/// framework/dispatch/rank/flight.h) show a fault. If all fail with one message, the line is this message, and the
/// diagnosis follows only if it says more than that a rank failed.
///
/// If a restart follows a signal that ended a process, the others are killed at once, and one line names the process,
/// the signal, the step from which the job goes on, and the number of restarts that are left. No restart follows a
/// signal that asks processes to end, or an error that a process has reported, unless `restarts` says so.
///
/// If REPLICAS is set, the job is a replica (distributed/control/group/replica_identity.h): the processes get a
/// REPLICA_INCARNATION, and when one fails, the service of replicas learns it at once.
///
/// Call it before this process has threads. Throws if a process cannot be started.
Launched launch(const LaunchOptions& options);

}  // namespace weft::dist
