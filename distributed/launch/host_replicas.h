// Replicas of one run on this host: a process for each, and their service.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace weft::dist {

struct HostReplicas {
  int64_t count = 2;
  std::string journal;  // path of the views of the service
  bool is_new = true;   // a new run, which replaces a journal that an earlier start_replicas() has written there
  std::string name;     // name of this program, for messages
};

/// Forks a process for each replica, which gets REPLICA, REPLICAS and REPLICAS_TOKEN, and returns nothing there: it
/// goes on as a replica, for example as the launcher of its ranks. This process runs the service of replicas until all
/// have ended, and returns 0 if one of them ended with 0, else the exit code of the first that ended. SIGINT, SIGTERM
/// and SIGHUP go to all of them, and none outlives this process. A replica that ends with another code is one line on
/// standard error; the others go on.
///
/// Call it before this process has threads. Throws if a process or the service cannot be started, or if `journal` is
/// another file.
std::optional<int> start_replicas(const HostReplicas& options);

}  // namespace weft::dist
