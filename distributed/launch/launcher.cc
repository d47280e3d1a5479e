#include "distributed/launch/launcher.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <utility>

#include "distributed/comm/store.h"
#include "distributed/control/group/group_client.h"
#include "distributed/control/group/replica_identity.h"
#include "distributed/control/service/token.h"
#include "distributed/launch/flight_folder.h"
#include "distributed/launch/locked_folder.h"
#include "distributed/launch/watch.h"
#include "framework/base/error.h"
#include "framework/base/failure_report.h"
#include "framework/base/signals.h"
#include "framework/dispatch/rank/flight.h"

extern char** environ;

namespace weft::dist {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::seconds;

constexpr seconds kToEnd(3), kToEndOnSignal(3);  // time for others to end after a failure; after SIGTERM
constexpr seconds kStopped(2);       // a process that is stopped for longer ends the job, as a silent one does
constexpr size_t kMostShown = 4096;  // lines

LockedFolder store_folder() {
  LockedFolder folder(temporary_parent(), "weft-job-");
  WEFT_CHECK_AS(kFailedPrecondition, !folder.path().empty(), "launch: cannot make a folder in ", temporary_parent(),
                "; need one for temporary files, which TMPDIR can name");
  return folder;
}

// Standard output or error of this process, opened again: its writes to a full pipe fail instead of waiting, while
// ranks that write to the same pipe still wait.
class OutputFile {
 public:
  explicit OutputFile(int fd) : fd_(fd) {
    struct stat s {};
    if (fstat(fd, &s) == 0 && (S_ISFIFO(s.st_mode) || S_ISCHR(s.st_mode)))
      own_ = open(str_cat("/proc/self/fd/", fd).c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  }
  ~OutputFile() {
    if (own_ >= 0) close(own_);
  }
  OutputFile(const OutputFile&) = delete;
  int fd() const { return own_ >= 0 ? own_ : fd_; }

 private:
  int fd_, own_ = -1;
};

// A pipe from a process, and the line that it is writing.
struct OutputPipe {
  int fd = -1;
  int to = STDERR_FILENO;
  std::string line;
};

struct Process {
  int rank = 0;
  pid_t pid = 0;
  std::array<OutputPipe, 2> streams;
  std::string last;  // its last line on standard error
  std::string held;  // the line with its failure, until all have ended
  std::optional<int> status;
  Clock::time_point ended;
  std::optional<Clock::time_point> stopped;  // since when a signal has stopped it

  bool running() const { return !status; }
  bool failed() const { return status && *status != 0; }
  int code() const { return WIFSIGNALED(*status) ? 128 + WTERMSIG(*status) : WEXITSTATUS(*status); }
};

// The number of processes in this control group that the kernel has killed for memory; -1: unknown.
int64_t memory_kills() {
  std::ifstream groups("/proc/self/cgroup");
  std::string line, group;
  while (std::getline(groups, line))
    if (line.starts_with("0::")) group = line.substr(3);
  for (const std::string& folder : {"/sys/fs/cgroup" + group, std::string("/sys/fs/cgroup")}) {
    std::ifstream events(folder + "/memory.events");
    std::string name;
    for (int64_t count; events >> name >> count;)
      if (name == "oom_kill") return count;
  }
  return -1;
}

class Launcher {
 public:
  Launcher(const LaunchOptions& o, Restarts& restarts)
      : options_(o), restarts_(restarts), kills_(memory_kills()), flight_(o.processes) {}

  Launched run() {
    const sigset_t mask = internal::launcher_signals();
    sigprocmask(SIG_BLOCK, &mask, &before_);
    signals_ = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    WEFT_CHECK_AS(kResourceExhausted, signals_ >= 0, "launch: signalfd: ", std::strerror(errno));
    try {
      processes_.resize(static_cast<size_t>(options_.processes));
      for (int r = 0; r < options_.processes; ++r) start(r);
      while (running() || open_streams()) {
        wait();
        end_for_stopped();
        end_others();
        if (!failure_) watch(false);
      }
    } catch (...) {
      signal_all(SIGKILL);
      for (const Process& p : processes_)
        if (p.pid > 0) waitpid(p.pid, nullptr, 0);
      restore();
      throw;
    }
    if (!failure_) watch(true);
    const int code = result();
    restore();
    return {code, asked_};
  }

  /// After run(): whether the job starts again.
  bool starts_again() const { return again_; }

 private:
  void restore() {
    close(signals_);
    sigprocmask(SIG_SETMASK, &before_, nullptr);
  }

  void start(int rank) {
    Process& p = processes_[rank];
    p.rank = rank;
    // All memory is allocated before fork.
    std::vector<std::string> variables;
    const auto set = [&](const std::string& name, const std::string& value) {
      std::erase_if(variables, [&](const std::string& v) { return v.starts_with(name + "="); });
      variables.push_back(name + "=" + value);
    };
    for (char** e = environ; *e; ++e) variables.emplace_back(*e);
    for (const char* name : {"RANK", "LOCAL_RANK"}) set(name, std::to_string(rank));
    for (const char* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE"}) set(name, std::to_string(options_.processes));
    set("JOB_STORE", store_.path());
    set("JOB_TOKEN", token_);
    if (const std::optional<control::ReplicaIdentity> id = control::replica_identity()) {
      set(control::kIncarnationVariable, str_cat(incarnation_));
      if (!id->token.empty()) set("REPLICAS_TOKEN", id->token);  // reading it took it out of the environment
    }
    set(kMemoryVariable, restarts_.memory());
    set(kNoMemoryVariable, restarts_.no_memory());
    if (!flight_.path().empty()) set(flight::kFolderVariable, flight_.path());
    set(kFailureReport, report_path(rank));
    std::vector<char*> env, argv;
    for (std::string& v : variables) env.push_back(v.data());
    std::vector<std::string> command = options_.command;
    for (const std::string& a : restarts_.arguments()) command.push_back(a);
    const std::string& program = options_.program.empty() ? command[0] : options_.program;
    for (std::string& a : command) argv.push_back(a.data());
    env.push_back(nullptr);
    argv.push_back(nullptr);
    int out[2] = {-1, -1}, error[2] = {-1, -1};
    const bool own = rank == 0;
    WEFT_CHECK_AS(kResourceExhausted, (own || pipe2(out, O_CLOEXEC) == 0) && pipe2(error, O_CLOEXEC) == 0,
                  "launch: pipe: ", std::strerror(errno));
    const pid_t parent = getpid();
    p.pid = fork();
    if (p.pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      internal::leave_terminal();  // the terminal signals only the launcher, which passes each signal on once
      if (!own) {
        dup2(out[1], STDOUT_FILENO);
        if (const int nothing = open("/dev/null", O_RDONLY); nothing >= 0) dup2(nothing, STDIN_FILENO);
      }
      dup2(error[1], STDERR_FILENO);
      sigprocmask(SIG_SETMASK, &before_, nullptr);
      execvpe(program.c_str(), argv.data(), env.data());
      dprintf(STDERR_FILENO, "cannot start %s: %s\n", program.c_str(), std::strerror(errno));
      _exit(127);
    }
    const int error_number = errno;
    close(error[1]);
    if (!own) close(out[1]);
    WEFT_CHECK_AS(kResourceExhausted, p.pid > 0, "launch: fork: ", std::strerror(error_number));
    setpgid(p.pid, p.pid);
    p.streams = {OutputPipe{out[0], STDOUT_FILENO, {}}, OutputPipe{error[0], STDERR_FILENO, {}}};
  }

  bool running() const {
    return std::any_of(processes_.begin(), processes_.end(), [](const Process& p) { return p.running(); });
  }
  // Passes signals to this process on.
  void take_signals() {
    signalfd_siginfo info;
    while (read(signals_, &info, sizeof info) == sizeof info)
      if (info.ssi_signo != SIGCHLD) {
        asked_ = true;
        signal_all(static_cast<int>(info.ssi_signo));
        signal_all(SIGCONT);  // a stopped process would not see it
      }
  }

  bool open_streams() const {
    return std::any_of(processes_.begin(), processes_.end(),
                       [](const Process& p) { return p.streams[0].fd >= 0 || p.streams[1].fd >= 0; });
  }
  std::string report_path(int rank) const { return str_cat(store_.path(), "/failure.", rank); }

  void signal_all(int signal) {
    for (const Process& p : processes_)
      if (p.pid > 0 && p.running()) kill(-p.pid, signal);
  }

  // Waits for output, an end or a signal, up to 0.1 s.
  void wait() {
    std::vector<pollfd> list{{signals_, POLLIN, 0}};
    std::vector<std::pair<Process*, OutputPipe*>> of;
    for (Process& p : processes_)
      for (OutputPipe& s : p.streams)
        if (s.fd >= 0) {
          list.push_back({s.fd, POLLIN, 0});
          of.emplace_back(&p, &s);
        }
    poll(list.data(), list.size(), 100);
    for (size_t i = 0; i < of.size(); ++i)
      if (list[i + 1].revents) read_from(*of[i].first, *of[i].second);
    take_signals();
    for (Process& p : processes_) {
      int status = 0;
      while (p.running() && waitpid(p.pid, &status, WNOHANG | WUNTRACED | WCONTINUED) == p.pid) {
        p.stopped.reset();
        if (WIFCONTINUED(status)) continue;
        if (WIFSTOPPED(status)) {
          p.stopped = Clock::now();
          continue;
        }
        p.status = status;
        p.ended = Clock::now();
        kill(-p.pid, SIGKILL);  // the children of the process
        if (p.failed()) tell_replicas();
        if (p.failed() && restart_follows(p)) {  // the reports of the others do not matter
          restarts_after_ = &p;
          failure_ = terminated_ = Clock::now();
          signal_all(SIGKILL);
        }
        if (p.failed() && !failure_) fail(str_cat("rank ", p.rank, " (pid ", p.pid, ") ", how(p)));
      }
    }
    // A process that it has left in another group may hold its pipes.
    if (!running() && quiet_++ > 10)
      for (Process& p : processes_)
        for (OutputPipe& s : p.streams) end(p, s);
  }

  // If this job is a replica: reports to the service of replicas that it has died, so that the other replicas need not
  // wait for its connection. A process of its own does it, because this process may fork again and so may not have the
  // threads of gRPC.
  void tell_replicas() {
    if (std::exchange(told_, true) || !std::getenv("REPLICAS")) return;
    const pid_t child = fork();
    if (child > 0) waitpid(child, nullptr, 0);
    if (child != 0) return;
    if (fork() != 0) _exit(0);  // nobody waits for the process that reports
    try {
      const control::ReplicaIdentity id = control::replica_identity().value();
      control::report_death_of_replica(id.address, id.token, id.name, incarnation_);
    } catch (const std::exception&) {  // the processes report a wrong variable
    }
    _exit(0);
  }

  // Whether a restart follows the signal that ended a process. An error that a process has reported would come again.
  bool restart_follows(const Process& p) const {
    if (restarts_after_ || terminated_ || asked_ || !WIFSIGNALED(*p.status) || !restarts_.may_follow(*p.status) ||
        !restarts_.any_left())
      return false;
    return std::none_of(processes_.begin(), processes_.end(), [&](const Process& q) {
      const std::optional<FailureReport> report = read_failure(report_path(q.rank));
      return report && !report->follows;
    });
  }

  void read_from(Process& p, OutputPipe& s) {
    char bytes[1 << 14];
    const ssize_t n = read(s.fd, bytes, sizeof bytes);
    if (n < 0 && errno == EINTR) return;
    if (n <= 0) return end(p, s);
    for (const char* at = bytes; at < bytes + n;) {
      const auto* end_of_line = static_cast<const char*>(memchr(at, '\n', static_cast<size_t>(bytes + n - at)));
      s.line.append(at, end_of_line ? end_of_line : bytes + n);
      if (end_of_line || s.line.size() > sizeof bytes) flush(p, s);
      at = end_of_line ? end_of_line + 1 : bytes + n;
    }
  }
  void end(Process& p, OutputPipe& s) {
    if (s.fd < 0) return;
    if (!s.line.empty()) flush(p, s);
    close(s.fd);
    s.fd = -1;
  }
  void flush(Process& p, OutputPipe& s) {
    const std::string line = std::exchange(s.line, {});
    if (s.to == STDERR_FILENO && !line.empty()) {
      p.last = line;
      const std::optional<FailureReport> report = read_failure(report_path(p.rank));
      if (report && p.held.empty() && line.ends_with(report->text)) {
        p.held = line;
        return;
      }
    }
    show(p, s.to, line);
  }
  void show(const Process& p, int to, const std::string& line) {
    if (to == STDERR_FILENO && !line.empty() && shown_.size() < kMostShown &&
        shown_.try_emplace(line, p.rank).first->second != p.rank)
      return;
    put(to, str_cat(p.rank ? str_cat("rank ", p.rank, ": ") : std::string(), line, "\n"));
  }
  // Writes when the reader has room. Meanwhile passes signals on; after a signal it waits for the reader only once
  // more.
  void put(int to, const std::string& text) {
    for (size_t at = 0; at < text.size();) {
      pollfd list[] = {{to, POLLOUT, 0}, {signals_, POLLIN, 0}};
      const int ready = poll(list, 2, !asked_ ? -1 : reader_stuck_ ? 0 : 1000);
      if (ready < 0 && errno != EINTR) return;
      reader_stuck_ |= ready == 0;
      if (ready == 0) return;
      take_signals();
      if (ready < 0 || !list[0].revents) continue;
      const ssize_t n =
          write(outputs_[to == STDERR_FILENO].fd(), text.data() + at, std::min<size_t>(text.size() - at, PIPE_BUF));
      if (n <= 0 && errno != EINTR && errno != EAGAIN) return;  // nobody reads any more
      if (n > 0) at += static_cast<size_t>(n);
    }
  }

  // Reports which rank the others wait for. Ends ranks in a deadlock now, before their deadline.
  void watch(bool last) {
    if (const auto news = watch_.look(last)) print(str_cat(options_.name, ": ", *news, "\n"));
    if (!watch_.deadlock() || !running()) return;
    diagnosis_ = watch_.deadlock();
    failure_ = terminated_ = Clock::now();
    signal_all(SIGTERM);
  }

  // The job fails. Processes that have not joined yet learn the cause from the store.
  void fail(const std::string& cause) {
    failure_ = Clock::now();
    try {
      FolderStore(store_.path()).set(FolderStore::kEnded, cause);
    } catch (const Error&) {  // a full disk: they end with SIGTERM
    }
  }

  // Ends the job if a process has been stopped for too long. Ranks that have joined notice it by themselves; it may not
  // have joined, or all may be stopped.
  void end_for_stopped() {
    if (failure_) return;
    for (const Process& p : processes_) {
      if (!p.running() || !p.stopped || Clock::now() - *p.stopped < kStopped) continue;
      diagnosis_ = diagnose();
      return fail(diagnosis_->sentence);
    }
  }

  // The diagnosis of the flight records, else the stopped process: a rank has no record before it joins.
  std::optional<diagnose::Diagnosis> diagnose() const {
    std::optional<diagnose::Diagnosis> found = flight_.diagnose();
    if (found && found->fault == diagnose::Fault::kStopped) return found;
    for (const Process& p : processes_) {
      if (!p.running() || !p.stopped) continue;
      diagnose::Diagnosis d{.fault = diagnose::Fault::kStopped, .rank = p.rank, .pid = p.pid};
      char host[256] = {};
      d.host = gethostname(host, sizeof host - 1) == 0 ? host : "unknown";
      const std::chrono::duration<double> since = Clock::now() - *p.stopped;
      d.sentence = str_cat("rank ", p.rank, " (host ", d.host, ", pid ", p.pid, ") has been stopped by a signal for ",
                           formatted("%.1f s", since.count()),
                           found || processes_.size() == 1 ? "" : ", and had not joined the job");
      return d;
    }
    return found;
  }

  // Whether all processes that have not ended are stopped by a signal.
  bool all_stopped() const {
    return std::all_of(processes_.begin(), processes_.end(), [](const Process& p) {
      return !p.running() || flight::process_stat(str_cat(p.pid)).state == 'T';
    });
  }

  // Other processes report that a process has died; a process that does not end is killed.
  void end_others() {
    if (!failure_ || !running()) return;
    const auto now = Clock::now();
    if (!terminated_ && (now > *failure_ + kToEnd || all_stopped())) {
      terminated_ = now;
      if (!diagnosis_) diagnosis_ = diagnose();  // before stopped and busy processes are killed
      signal_all(SIGTERM);
    }
    if (terminated_ && (now > *terminated_ + kToEndOnSignal || all_stopped())) signal_all(SIGKILL);
  }

  bool follows(const Process& p) const {
    const std::optional<FailureReport> report = read_failure(report_path(p.rank));
    return report && report->follows;
  }
  bool ended_by_us(const Process& p) const { return terminated_ && p.ended > *terminated_; }

  // The first process that failed by itself (a signal killed it, or its own error ended it); other processes may only
  // report this failure.
  const Process* culprit() const {
    const auto order = [&](const Process& p) {
      const int kind = ended_by_us(p) ? 3 : WIFSIGNALED(*p.status) ? 0 : follows(p) ? 2 : 1;
      return std::pair(kind, p.ended);
    };
    const Process* found = nullptr;
    for (const Process& p : processes_)
      if (p.failed() && (!found || order(p) < order(*found))) found = &p;
    return found;
  }

  // The exit code, after the lines about a failure and a restart.
  int result() {
    if (restarts_after_ && !asked_) {
      const Process& p = *restarts_after_;
      again_ = true;
      print(str_cat(options_.name, ": rank ", p.rank, " (pid ", p.pid, ") ", how(p), "; ", restarts_.take(), "\n"));
      return p.code();
    }
    const int code = report();
    const Process* first = culprit();
    // The signals that this launcher sent do not count.
    const bool asked_to_end =
        first && WIFSIGNALED(*first->status) && !ended_by_us(*first) && !restarts_.may_follow(*first->status);
    // A stopped process was killed, so its restart follows a signal. An error that another one has reported would come
    // again.
    const bool stopped = diagnosis_ && diagnosis_->fault == diagnose::Fault::kStopped && first &&
                         (ended_by_us(*first) || follows(*first));
    if (asked_ || asked_to_end || !restarts_.may_follow(stopped ? SIGKILL : W_EXITCODE(code, 0))) return code;
    const std::string place = restarts_.take();
    again_ = !place.empty();
    if (again_) print(str_cat(options_.name, ": ", place, "\n"));
    return code;
  }

  int report() {
    const Process* p = culprit();
    // No process failed by itself: the fault for which this launcher ended them is the cause.
    if (diagnosis_ && !asked_ && (watch_.deadlock() || (p && ended_by_us(*p)))) {
      report_fault();
      return 1;
    }
    // All processes have agreed to end: a signal to one process counts for all.
    const auto agreed = [&](const Process& q) {
      const int code = WIFEXITED(*q.status) ? WEXITSTATUS(*q.status) : 0;
      return code == p->code() && (code == 128 + SIGINT || code == 128 + SIGTERM || code == 128 + SIGHUP);
    };
    asked_ = asked_ || (p && std::all_of(processes_.begin(), processes_.end(), agreed));
    const bool alike =
        p && !p->held.empty() && std::all_of(processes_.begin(), processes_.end(), [&](const Process& q) {
          return q.failed() && q.code() == p->code() && q.held == p->held;
        });
    if (alike) {
      print(p->held + "\n");
      if (!diagnosis_) diagnosis_ = flight_.diagnose();
      // An error of all processes is the fault of none.
      const bool of_none = diagnosis_ && diagnosis_->fault == diagnose::Fault::kFailed && processes_.size() > 1;
      if (!of_none) report_fault();
      return p->code();
    }
    for (const Process& q : processes_)  // a rank that only follows has nothing to add
      if (&q != p && !q.held.empty() && !follows(q)) show(q, STDERR_FILENO, q.held);
    if (!p) return 0;
    if (asked_ && p->code() > 128) {  // a signal asked the process to end
      if (!p->held.empty()) show(*p, STDERR_FILENO, p->held);
      return p->code();
    }
    const std::string& said = p->held.empty() ? p->last : p->held;
    print(str_cat(options_.name, ": rank ", p->rank, " (pid ", p->pid, ") ", how(*p),
                  said.empty() ? "" : "; its last message: ", said, "\n"));
    if (!diagnosis_) diagnosis_ = flight_.diagnose();
    report_fault();
    return p->code();
  }
  // How a process has ended: "exited with code 3".
  std::string how(const Process& p) const {
    if (!WIFSIGNALED(*p.status)) return str_cat("exited with code ", p.code());
    const int signal = WTERMSIG(*p.status);
    const int64_t kills = memory_kills();
    return str_cat("was killed by signal ", signal, " (", strsignal(signal), ")",
                   signal == SIGKILL && kills_ >= 0 && kills > kills_
                       ? ": the system had no memory left for it (oom_kill); need smaller shards or a --memory_budget"
                       : "");
  }
  // The last lines of a job that has failed.
  void report_fault() {
    const auto fault = diagnosis_ ? diagnosis_->fault : diagnose::Fault::kNone;
    if (fault != diagnose::Fault::kNone && fault != diagnose::Fault::kSlow) {  // a slow rank ends no job
      if (const std::string kept = flight_.keep(options_.keep, diagnosis_->verdict()); !kept.empty())
        print(str_cat(options_.name, ": flight records for //tools:diagnose: ", kept, "\n"));
      print(str_cat(options_.name, ": ", diagnosis_->verdict(), "\n"));
    }
  }
  void print(const std::string& text) { put(STDERR_FILENO, text); }

  const LaunchOptions& options_;
  Restarts& restarts_;
  const int64_t kills_;
  const LockedFolder store_ = store_folder();
  const std::string token_ = control::make_token();
  const int64_t incarnation_ = control::new_incarnation();
  FlightFolder flight_;
  Watch watch_{flight_};
  std::optional<diagnose::Diagnosis> diagnosis_;
  sigset_t before_;
  int signals_ = -1;
  std::vector<Process> processes_;
  std::optional<Clock::time_point> failure_, terminated_;
  std::map<std::string, int> shown_;  // lines of standard error, with the first rank that wrote each
  const OutputFile outputs_[2] = {OutputFile(STDOUT_FILENO), OutputFile(STDERR_FILENO)};
  const Process* restarts_after_ = nullptr;  // a signal has ended it, and a restart follows
  bool asked_ = false, again_ = false, reader_stuck_ = false;
  bool told_ = false;  // the service of replicas has been told of a death
  int quiet_ = 0;
};

}  // namespace

Launched launch(const LaunchOptions& options) {
  WEFT_CHECK(options.processes >= 1 && options.processes <= 4096, "launch: got ", options.processes,
             " processes; need 1 to 4096");
  WEFT_CHECK(!options.command.empty(), "launch: got no command; need the command of a process");
  Restarts restarts(options.restarts);
  for (;;) {
    Launcher launcher(options, restarts);
    const Launched job = launcher.run();
    if (!launcher.starts_again()) return job;
  }
}

}  // namespace weft::dist
