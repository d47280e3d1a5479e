// Restarts of the processes of a job, by their launcher.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "distributed/launch/held_memory.h"

namespace weft::dist {

struct RestartOptions {
  int64_t most = 0;  // restarts without a new committed step; 0: none
  /// Also restarts a process that ended by itself with an exit code other than 0, 2 (wrong flags), 126 and 127 (a
  /// program that cannot start). Otherwise only a process that a signal ended is restarted: an error that a program
  /// reports would come again.
  bool after_errors = false;
  /// Returns the newest step that a restart can resume; -1: none. `memory`: the folder of the states in memory
  /// (HeldMemory). The launcher also calls it while processes run, so it must change nothing. An Error counts as no new
  /// step. Empty: steps are unknown, and no restart counts as progress.
  std::function<int64_t(const std::string& memory)> committed = {};
  bool names_step = true;                   // false: a restart may go on from a newer step than committed()
  std::vector<std::string> arguments = {};  // each start adds them to the arguments of the command
  std::vector<std::string> resume = {};     // a start from a committed step adds them as well
};

/// The restarts of one job: decides whether one follows, counts them, and holds the memory from which they go on.
class Restarts {
 public:
  explicit Restarts(const RestartOptions& o) : o_(o), memory_(o.most > 0 ? kFiles : 0), left_(o.most) {
    step_ = committed();
  }
  /// Whether an end with this status of waitpid() may be followed by a restart. SIGINT, SIGTERM, SIGHUP and SIGQUIT ask
  /// a process to end.
  bool may_follow(int status) const;
  /// Whether a restart is left.
  bool any_left() const { return left_ > 0 || (o_.most > 0 && committed() > step_); }
  /// Counts a restart and describes it: "starting again from step 40, 2 restarts left". Empty: none was left.
  std::string take();
  /// The arguments of the next start, after the arguments of the command.
  std::vector<std::string> arguments() const;
  /// The folder of states in memory, for the processes; empty: none.
  const std::string& memory() const { return memory_.path(); }
  /// The reason why there is none although restarts need it; else empty.
  const std::string& no_memory() const { return memory_.refused(); }

 private:
  static constexpr int kFiles = 4;  // two states of two files: models/train/memory.h
  int64_t committed() const;
  const RestartOptions& o_;
  const HeldMemory memory_;
  int64_t left_, step_ = -1;
  bool again_ = false;  // a restart was taken
};

}  // namespace weft::dist
