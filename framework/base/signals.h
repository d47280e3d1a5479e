// Signals of threads and of processes that another process starts.
#pragma once
#include <signal.h>
#include <unistd.h>

namespace weft::internal {

/// Blocks all signals in this thread while it lives. A thread that starts meanwhile inherits the mask, so that handlers
/// run on the other threads of the program.
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

/// The signals that a process which starts others waits for: the end of a child, and requests to end. SIGHUP is none
/// if this process ignores it, as under nohup: blocked, it would be queued all the same.
inline sigset_t launcher_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int s : {SIGCHLD, SIGINT, SIGTERM}) sigaddset(&set, s);
  struct sigaction hangup = {};
  if (sigaction(SIGHUP, nullptr, &hangup) != 0 || hangup.sa_handler != SIG_IGN) sigaddset(&set, SIGHUP);
  return set;
}

/// Moves this process into a process group of its own, which gets no signals of the terminal. It still writes to the
/// terminal, also with `stty tostop`; its reads from the terminal fail. Programs that it starts inherit this.
inline void leave_terminal() {
  setpgid(0, 0);
  signal(SIGTTOU, SIG_IGN);
  signal(SIGTTIN, SIG_IGN);
}

}  // namespace weft::internal
