#include "distributed/launch/host_replicas.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <vector>

#include "distributed/control/group/group_server.h"
#include "distributed/control/service/token.h"
#include "framework/base/error.h"
#include "framework/base/signals.h"
#include "framework/dispatch/rank/flight.h"

namespace weft::dist {
namespace {

struct Replica {
  pid_t pid = 0;  // 0: it has ended
  int to = -1;    // the pipe to it
};

// The line that the first process writes to this replica: the address of the service. Ends this process with the first.
std::string address_from(int pipe) {
  std::string line;
  for (char c = 0; c != '\n';) {
    const ssize_t n = read(pipe, &c, 1);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) _exit(1);
    if (c != '\n') line += c;
  }
  close(pipe);
  return line;
}

int code_of(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

}  // namespace

std::optional<int> start_replicas(const HostReplicas& o) {
  std::fflush(stdout);
  const std::string token = control::make_token();
  const sigset_t mask = internal::launcher_signals();
  sigset_t before;
  sigprocmask(SIG_BLOCK, &mask, &before);
  std::vector<Replica> replicas;
  const pid_t parent = getpid();
  for (int64_t i = 0; i < o.count; ++i) {
    int pipe[2] = {-1, -1};
    WEFT_CHECK_AS(kResourceExhausted, pipe2(pipe, O_CLOEXEC) == 0, "replicas: pipe: ", std::strerror(errno));
    const pid_t pid = fork();
    WEFT_CHECK_AS(kResourceExhausted, pid >= 0, "replicas: fork: ", std::strerror(errno));
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      internal::leave_terminal();  // the terminal signals only the first process, which passes each signal on once
      sigprocmask(SIG_SETMASK, &before, nullptr);
      for (const Replica& r : replicas) close(r.to);
      close(pipe[1]);
      setenv("REPLICAS", address_from(pipe[0]).c_str(), 1);
      setenv("REPLICA", std::to_string(i).c_str(), 1);
      setenv("REPLICAS_TOKEN", token.c_str(), 1);
      if (const char* const records = std::getenv(flight::kFolderVariable); records && *records)
        setenv(flight::kFolderVariable, str_cat(records, "/", i).c_str(), 1);  // a folder for each replica
      return {};
    }
    close(pipe[0]);
    setpgid(pid, pid);
    replicas.push_back({pid, pipe[1]});
  }
  const control::GroupServer server({.token = token,
                                     .journal = o.journal,
                                     .job = "the replicas of one host",  // other services write other titles
                                     .is_new = o.is_new,
                                     .replicas = o.count});
  const std::string line = server.address() + "\n";
  for (const Replica& r : replicas) {
    WEFT_CHECK_AS(kUnavailable, write(r.to, line.data(), line.size()) == std::ssize(line),
                  "replicas: ", std::strerror(errno));
    close(r.to);
  }
  std::optional<int> code;
  for (int64_t running = o.count; running > 0;) {
    const timespec most{.tv_sec = 0, .tv_nsec = 100'000'000};
    siginfo_t info;
    const int signal = sigtimedwait(&mask, &info, &most);
    for (size_t i = 0; i < replicas.size(); ++i) {
      Replica& r = replicas[i];
      if (r.pid == 0) continue;
      if (signal > 0 && signal != SIGCHLD) {
        kill(r.pid, signal);
        kill(r.pid, SIGCONT);  // a stopped process would not see it
      }
      int status = 0;
      if (waitpid(r.pid, &status, WNOHANG) != r.pid) continue;
      r.pid = 0;
      --running;
      const int own = code_of(status);
      if (own != 0 && running > 0 && own != 128 + SIGINT && own != 128 + SIGTERM && own != 128 + SIGHUP)
        std::fprintf(stderr, "%s: replica %zu has ended with code %d; the others go on\n", o.name.c_str(), i, own);
      if (!code || own == 0) code = own;
    }
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);
  return code;
}

}  // namespace weft::dist
