// Threads without signals: the handlers of the program run on its own threads.
#pragma once
#include <signal.h>

namespace weft::internal {

/// Blocks all signals in this thread while it lives. A thread that starts meanwhile inherits the mask.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  /// The mask of the thread before.
  const sigset_t& before() const { return before_; }

 private:
  sigset_t before_;
};

}  // namespace weft::internal
