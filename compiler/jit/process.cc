#include "compiler/jit/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>

#include "framework/base/str_cat.h"
#include "framework/io/file.h"

extern char** environ;

namespace weft::jit {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kMaxOutput = 64 << 10;

struct Child {
  pid_t pid = -1;
  int pipe = -1;
  bool ended = true;
};

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (const std::string& s : strings) out.push_back(const_cast<char*>(s.c_str()));
  out.push_back(nullptr);
  return out;
}

std::vector<std::string> environment_with(const std::vector<std::string>& changes) {
  std::vector<std::string> out = changes;
  for (char** e = environ; *e; ++e) {
    std::string_view entry = *e, name = entry.substr(0, entry.find('=') + 1);
    bool changed = std::any_of(changes.begin(), changes.end(), [&](const std::string& c) {
      return std::string_view(c).substr(0, name.size()) == name;
    });
    if (!changed) out.emplace_back(entry);
  }
  return out;
}

// The child leads its own process group, so that a kill also reaches its children.
Child start(const Command& command, ProgramOutcome& outcome) {
  Child child;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    outcome.failure = str_cat("could not be started: ", io::errno_text(errno));
    return child;
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  sigdelset(&all, SIGKILL);
  sigdelset(&all, SIGSTOP);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  std::vector<std::string> environment = environment_with(command.environment);
  const int error = ::posix_spawn(&child.pid, command.argv[0].c_str(), &actions, &attributes,
                                  pointers(command.argv).data(), pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (error) {
    ::close(ends[0]);
    outcome.failure = str_cat("could not be started: ", io::errno_text(error));
    return child;
  }
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  child.pipe = ends[0];
  child.ended = false;
  return child;
}

// Reads all available output, so that no child waits for a full pipe.
void drain(Child& child, ProgramOutcome& outcome) {
  char buffer[4096];
  while (child.pipe >= 0) {
    ssize_t n = ::read(child.pipe, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
      ::close(child.pipe);
      child.pipe = -1;
      return;
    }
    size_t room = kMaxOutput - std::min(kMaxOutput, outcome.output.size());
    outcome.output.append(buffer, std::min(room, static_cast<size_t>(n)));
    if (room == 0) return;  // endless output: return to check the time limit
  }
}

// Records how the child ended, if it has. Processes that it left running are ended too.
void reap(Child& child, ProgramOutcome& outcome, int flags) {
  int status = 0;
  pid_t got;
  while ((got = ::waitpid(child.pid, &status, flags)) < 0 && errno == EINTR) {
  }
  if (got == 0) return;
  child.ended = true;
  ::kill(-child.pid, SIGKILL);
  drain(child, outcome);
  if (child.pipe >= 0) ::close(child.pipe);
  child.pipe = -1;
  // ECHILD: this process ignores SIGCHLD, so the caller judges by the results.
  if (got < 0 || outcome.timed_out) return;
  if (WIFSIGNALED(status)) outcome.failure = str_cat("was ended by signal ", WTERMSIG(status));
  if (WIFEXITED(status) && WEXITSTATUS(status))
    outcome.failure = str_cat("ended with exit status ", WEXITSTATUS(status));
}

}  // namespace

std::vector<ProgramOutcome> run_all(std::span<const Command> commands, double seconds) {
  std::vector<ProgramOutcome> outcomes(commands.size());
  std::vector<Child> children;
  for (size_t i = 0; i < commands.size(); ++i) children.push_back(start(commands[i], outcomes[i]));
  const Clock::time_point deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  for (;;) {
    std::vector<pollfd> waiting;
    bool closed = false;  // a child that closed its output is about to exit
    bool running = false;
    for (Child& child : children) {
      if (child.ended) continue;
      running = true;
      if (child.pipe >= 0) waiting.push_back({child.pipe, POLLIN, 0});
      closed |= child.pipe < 0;
    }
    if (!running) return outcomes;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) break;
    ::poll(waiting.data(), waiting.size(), static_cast<int>(std::min<int64_t>(left, closed ? 1 : 20)));
    for (size_t i = 0; i < children.size(); ++i) {
      if (children[i].ended) continue;
      drain(children[i], outcomes[i]);
      reap(children[i], outcomes[i], WNOHANG);
    }
  }
  for (size_t i = 0; i < children.size(); ++i) {
    if (children[i].ended) continue;
    outcomes[i].timed_out = true;
    outcomes[i].failure = str_cat("did not end within ", seconds, " s and was stopped");
    ::kill(-children[i].pid, SIGKILL);
    reap(children[i], outcomes[i], 0);
  }
  return outcomes;
}

}  // namespace weft::jit
