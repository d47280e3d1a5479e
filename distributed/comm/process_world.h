// ProcessWorld: the ranks of several processes, over any transport.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "framework/dispatch/rank/communicator.h"

namespace weft::dist {

class ProcessHub;  // process_hub.h: the transport

/// Shared memory: distributed/comm/shared/world.h. TCP: distributed/comm/gloo/world.h.
class ProcessWorld final {
 public:
  ProcessWorld(std::shared_ptr<ProcessHub> hub, std::chrono::nanoseconds timeout);
  /// Leaves: no other rank waits for ranks of this process any more. Drop its communicators first.
  ~ProcessWorld();
  ProcessWorld(const ProcessWorld&) = delete;

  /// The number of ranks.
  int size() const;
  /// "rank 2 (pid 7)"; over TCP with the host: "rank 2 (pid 7 on host a)".
  std::string name_of(int rank) const;
  /// Creates a communicator of the ranks `group`; returns the communicators of this process's ranks, in the order of
  /// `group`. All processes with ranks in `group` create the same communicators in the same order, and wait for each
  /// other.
  std::vector<Ref<Communicator>> communicators(const std::string& name, const std::vector<int>& group);
  /// All communicators of this process, including later ones, fail with this cause. Does not wait.
  void abort(const std::string& cause);

 private:
  std::shared_ptr<ProcessHub> hub_;
  const std::chrono::nanoseconds timeout_;
  const pid_t process_;
  std::map<std::string, int> made_;  // number of communicators of this name and these ranks so far
};

}  // namespace weft::dist
