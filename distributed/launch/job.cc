#include "distributed/launch/job.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <latch>
#include <set>
#include <sstream>
#include <system_error>
#include <thread>

#include "distributed/control/address.h"
#include "distributed/control/client.h"
#include "distributed/control/identity.h"
#include "distributed/control/service/job_server.h"
#include "distributed/control/service/token.h"
#include "distributed/launch/launcher.h"
#include "distributed/launch/processes.h"
#include "framework/base/cpu.h"
#include "framework/base/failure_report.h"
#include "framework/base/one_line.h"
#include "framework/base/switches.h"
#include "framework/base/thread_pool.h"
#include "framework/dispatch/rank/flight.h"
#include "framework/io/checksum.h"
#include "framework/io/file.h"
#include "framework/io/mark.h"

namespace weft::dist {
namespace {

using control::Identity;

// The key-value part of the coordination service.
class ServiceStore final : public Store {
 public:
  explicit ServiceStore(control::Client& client) : client_(client) {}
  void set(const std::string& key, const std::string& value) override { client_.set(key, value); }
  std::string get(const std::string& key, Deadline deadline) override { return client_.get(key, deadline); }
  void check() override {
    const std::optional<control::Ending> e = client_.ended();
    if (e && !e->finished) throw Error(Code::kAborted, e->text);
  }

 private:
  control::Client& client_;
};

// The first call takes the token out of the environment.
const std::string& token() {
  static const auto* const token = [] {
    const char* const file = std::getenv("JOB_TOKEN_FILE");
    const std::string text = control::take_token("JOB_TOKEN");
    return new std::string(text.empty() && file && *file ? control::token_of_file(file) : text);
  }();
  return *token;
}

std::string binary_fact() {
  const io::MappedFile file("/proc/self/exe");
  return str_cat(file.bytes().size(), " bytes, checksum ", io::hex64(io::checksum(file.bytes())));
}

// The effect of the switches: passes in any order, and the selected instruction set.
std::vector<std::pair<std::string, std::string>> switch_facts(bool any_instructions) {
  std::set<std::string> passes;
  std::istringstream list(switch_value("WEFT_DISABLE"));
  for (std::string name; std::getline(list, name, ',');)
    if (!name.empty()) passes.insert(name);
  std::string disabled;
  for (const std::string& name : passes) disabled += (disabled.empty() ? "" : ",") + name;
  std::vector<std::pair<std::string, std::string>> facts{{"WEFT_DISABLE", disabled},
                                                         {"WEFT_EXEC", switch_value("WEFT_EXEC")}};
  if (!any_instructions) facts.emplace_back("the instruction set (WEFT_ISA)", to_string_view(selected_isa()));
  return facts;
}

// Facts have bounded length; a checksum covers the truncated rest.
std::string short_fact(const std::string& text) {
  constexpr size_t kMost = 200;
  return text.size() <= kMost ? text
                              : str_cat(text.substr(0, kMost), "... (checksum ", io::hex64(io::checksum(text)), ")");
}

std::vector<std::string> own_command() {
  std::ifstream file("/proc/self/cmdline");
  std::vector<std::string> command;
  for (std::string argument; std::getline(file, argument, '\0');) command.push_back(argument);
  WEFT_CHECK_AS(kFailedPrecondition, !command.empty(), "job: /proc/self/cmdline is not readable");
  return command;
}

using JobFacts = std::vector<std::pair<std::string, std::string>>;

std::string arguments_fact() {
  std::string text;
  const std::vector<std::string> command = own_command();
  for (size_t i = 1; i < command.size(); ++i) text += (i > 1 ? " " : "") + command[i];
  return text;
}

std::string own_host() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "";
}

bool is_started(const Identity& id) { return id.world > 1 || id.source == "launch"; }

int launch_own(const JobOptions& o) {
  std::vector<std::string> command = own_command();
  std::string name = command[0].substr(command[0].rfind('/') + 1);
  if (const char* const replica = std::getenv("REPLICAS") ? std::getenv("REPLICA") : nullptr)
    name += str_cat(": replica ", replica);
  std::fflush(stdout);
  return launch({.processes = o.ranks,
                 .command = std::move(command),
                 .program = std::filesystem::read_symlink("/proc/self/exe").string(),
                 .name = name,
                 .restarts = o.restarts,
                 .keep = o.keep})
      .code;
}

// gRPC waits forever for threads that it could not start, so this checks the thread limit first.
void check_threads() {
  constexpr int kThreads = 16;  // about the number of threads of gRPC and the transports
  std::latch release(1);
  std::vector<std::thread> threads;
  std::string reason;
  try {
    for (int i = 0; i < kThreads; ++i) threads.emplace_back([&] { release.wait(); });
  } catch (const std::system_error& e) {
    reason = e.what();
  }
  release.count_down();
  const size_t started = threads.size();
  for (std::thread& t : threads) t.join();
  WEFT_CHECK_AS(kResourceExhausted, reason.empty(), "job: only ", started, " threads can be started (", reason,
                "); need ", kThreads, " more in each process: see ulimit -u, or the limit of the container");
}

void share_cores(const Identity& id) {
  const auto cores = static_cast<int64_t>(num_threads());
  const int64_t all = id.local_world > 0 ? id.local_world : 1;
  set_num_threads(
      static_cast<int>(std::max<int64_t>(1, cores * (id.local_rank + 1) / all - cores * id.local_rank / all)));
}

std::unique_ptr<control::JobServer> start_service(const control::JobServerOptions& o) {
  try {
    return std::make_unique<control::JobServer>(o);
  } catch (const Error& e) {
    if (std::string_view(e.what()).find(std::strerror(EADDRINUSE)) == std::string_view::npos) throw;
    throw Error(e.code(),
                str_cat(e.what(), "; look for a second process of rank 0, and for an earlier job that still runs"));
  }
}

constexpr std::chrono::milliseconds kLook(100);   // a process that joins checks at this interval for the job's end
constexpr std::chrono::seconds kReportEvery(10);  // interval of the reports of rank 0 while it waits
constexpr std::chrono::seconds kToTell(3);        // time limit to report a failure before the join to other processes

// Whether the coordination service knows of this process: it learns of the failure by other means.
std::atomic<bool> known{false};

std::unique_ptr<control::JobServer> start_service(const Identity& id, const std::string& secret) {
  // The host's own name may resolve to loopback here, or may not be known yet, as in a starting pod.
  const std::string host = id.service_host();
  const std::string own = !id.one_host() && !control::is_reachable(host) ? "" : host;
  return start_service({.address = control::with_port(own, id.port),
                        .token = secret,
                        .job = id.job,
                        .size = id.world,
                        .host = id.one_host() ? own_host() : ""});
}

control::ClientOptions client_options(const Identity& id, const std::string& secret, const std::string& address) {
  return {.address = address, .token = secret, .job = id.job, .rank = id.rank, .size = id.world, .service_rank = 0};
}

// A process that was started by hand fails before it has joined: the others wait for it, and no launcher sees its end.
void tell_before_join(Code code, const std::string& text) {
  if (known.exchange(true)) return;
  try {
    const Identity id = control::identity_of(control::environment());
    if (id.world == 1 || !id.store.empty()) return;
    const std::string& secret = token();
    std::unique_ptr<control::JobServer> server;
    std::string address = control::with_port(id.service_host(), id.port);
    if (id.rank == 0) {
      server = start_service(id, secret);
      address = control::with_port(id.service_host(), server->port());
    }
    control::ClientOptions o = client_options(id, secret, address);
    o.failure.emplace(code, text);
    o.timeout = kToTell;
    control::Client client(o);
    try {
      client.join();
    } catch (const Error&) {  // the failure, or an earlier one
    }
    if (server) std::this_thread::sleep_for(kToTell);  // until others ask
  } catch (const std::exception&) {                    // there is nobody to tell
  }
}
[[maybe_unused]] const bool tells = (set_tell_others(tell_before_join), true);

// Rank 0 prints a line while it waits for the others.
void report_waiting(const std::string& missing, std::chrono::nanoseconds waited, std::chrono::nanoseconds timeout,
                    int64_t refused) {
  const auto seconds = [](std::chrono::nanoseconds t) { return std::chrono::duration_cast<std::chrono::seconds>(t); };
  std::fprintf(
      stderr, "%s\n",
      str_cat(program_invocation_short_name, ": rank 0 has waited ", seconds(waited).count(), " s of ",
              seconds(timeout).count(), " s: ", missing, refused ? "; a process with another token was refused" : "")
          .c_str());
}

void close_output() {
  const int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
  WEFT_CHECK_AS(kFailedPrecondition, nothing >= 0 && dup2(nothing, STDOUT_FILENO) >= 0,
                "/dev/null: ", std::strerror(errno));
  close(nothing);
}

}  // namespace

struct Job::Member {
  Member(const Identity& id, const JobOptions& o) {
    const std::string secret = token();
    const bool one_host = id.one_host();
    const std::string where =
        id.local_world == 0 ? "may have processes on several hosts (" : "has processes on several hosts (";
    WEFT_CHECK_AS(kPermissionDenied, one_host || !secret.empty(), "the job ", where, id.source,
                  id.local_world == 0 ? " does not set how many are on this one" : "",
                  "), and JOB_TOKEN is not set; need one secret text in JOB_TOKEN of all processes, or the path of a "
                  "file with it in JOB_TOKEN_FILE",
                  id.local_world == 0 ? "; or LOCAL_RANK and LOCAL_WORLD_SIZE, if all processes are on this host" : "");
    check_threads();
    const std::string host = id.service_host();
    // In Kubernetes, the name of a pod is not known before it starts. All pods have this variable.
    const bool pod = std::getenv("KUBERNETES_SERVICE_HOST");
    if (const std::string reason = pod ? "" : control::unknown_host(host); !reason.empty())
      internal::fail(Code::kInvalidArgument, str_cat("join: the host of rank 0, '", host, "', is not known here: ",
                                                     reason, "; need its name or address in MASTER_ADDR"));
    const auto deadline = std::chrono::steady_clock::now() + o.timeout;
    WEFT_CHECK_AS(kFailedPrecondition, id.store.empty() || io::has_mark(id.store, io::base_name(id.store)),
                  "job: JOB_STORE is '", one_line(id.store, 100),
                  "', and no launcher has made this folder; need a launcher, or no JOB_STORE");
    if (!id.store.empty()) folder = std::make_unique<FolderStore>(id.store);
    std::string address;
    if (id.rank == 0) {
      server = start_service(id, secret);
      address = control::with_port(host, server->port());
      if (folder) folder->set("service", address);
    } else {
      address = folder ? folder->get("service", deadline) : control::with_port(host, id.port);
    }
    control::ClientOptions options = client_options(id, secret, address);
    options.timeout = std::chrono::duration_cast<std::chrono::milliseconds>(o.timeout);
    options.phase = flight::current_phase;
    options.report_every = kLook;
    options.waiting = [this, begin = std::chrono::steady_clock::now(), reports = 0,
                       timeout = o.timeout](const std::string& text) mutable {
      if (folder) folder->check();
      const auto waited = std::chrono::steady_clock::now() - begin;
      if (!server || waited < (reports + 1) * kReportEvery) return;
      ++reports;
      report_waiting(text, waited, timeout, server->status().refused);
    };
    options.facts.emplace_back("ranks", std::to_string(o.ranks));
    for (const auto& [name, value] : program_facts(o.facts)) options.facts.emplace_back(name, short_fact(value));
    known = true;
    client = std::make_unique<control::Client>(options);
    store = std::make_unique<ServiceStore>(*client);
    const int count = o.ranks / static_cast<int>(id.world);
    try {
      client->join();
      joined = true;
      auto job = std::make_unique<Processes>(*store, o.ranks, static_cast<int>(id.rank) * count, count, o.timeout,
                                             o.transport, control::address_towards(host));
      // The service detects more than a transport: a stopped process, an unreachable host, the cause of a failure.
      client->on_end([world = &job->world()](const control::Ending& e) { world->abort(e.text); });
      Processes::set_current(std::move(job));
    } catch (const Error& e) {
      fail(e);
      // Before the join, the others may have learnt the end from the launcher, as this process has.
      if (joined || !folder || !folder->has(FolderStore::kEnded)) await_end();
      throw;
    }
    if (o.share_cores) share_cores(id);
    if (id.rank > 0) close_output();
  }

  ~Member() {
    failed |= std::uncaught_exceptions() > exceptions;
    if (folder && server) folder->remove("service");  // before others leave: their next job has another address
    if (!failed) {
      try {
        Processes::current()->free_thread();
        Processes::current()->barrier();
        client->leave();
      } catch (const Error&) {
        // Another process has failed, and reports it.
      }
    }
    await_end();
    store.reset();
    client.reset();  // the client goes first: it may call the world
    Processes::set_current({});
  }

  void fail(const Error& cause) {
    if (std::exchange(failed, true)) return;
    if (const Processes* const job = Processes::current())  // null: the process failed while it joined
      for (int r = job->first(); r < job->first() + job->count(); ++r)
        if (flight::RecordRing* const ring = flight::ring(r, job->size())) ring->fail(cause.code(), cause.what());
    report_failure(cause.code(), cause.what());
    // If this failure follows from another one, the others know the other.
    if (!follows(cause.code())) client->abort(cause.code(), cause.what());
  }

  // Waits while others may still use the service, or must learn why the job has ended; stopped processes never will.
  void await_end() {
    const auto over = [&] {
      const control::JobServerStatus s = server->status();
      return s.stage == control::JobServerStatus::Stage::kEnded && s.connections <= 1;
    };
    for (int i = 0; server && i < (failed ? 60 : 200) && !over(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }

  std::unique_ptr<FolderStore> folder;         // the store of a job that our launcher started
  std::unique_ptr<control::JobServer> server;  // only in the process of rank 0
  std::unique_ptr<control::Client> client;
  std::unique_ptr<ServiceStore> store;
  bool joined = false, failed = false;
  const int exceptions = std::uncaught_exceptions();
};

Job::Job(const JobOptions& o) : facts_(o.facts) {
  if (Processes::current()) return;
  const Identity id = control::identity_of(control::environment());
  WEFT_CHECK(o.ranks >= 1 && o.ranks % id.world == 0, "job: the mesh has ", o.ranks, " ranks, and ", id.source,
             " has started ", id.world,
             " processes of this program; need a number of processes that divides the ranks");
  const bool restarts = o.restarts.most > 0;
  WEFT_CHECK(!restarts || !is_started(id), "job: got ", o.restarts.most, " restarts, and ", id.source,
             " has started this process; drop the restarts: ", id.source, " restarts the job");
  if (o.ranks == 1 && !restarts) return;
  if (!is_started(id)) {
    code_ = launch_own(o);
    return;
  }
  try {
    member_ = std::make_unique<Member>(id, o);
  } catch (const Error& e) {
    tell_before_join(e.code(), e.what());
    throw;
  }
}
Job::~Job() = default;

Store* Job::store() const { return member_ ? member_->store.get() : nullptr; }

void Job::progress(int64_t step) {
  if (member_) member_->client->progress(static_cast<uint64_t>(step));
}

void Job::fail(const Error& cause) {
  if (member_) member_->fail(cause);
}

JobFacts program_facts(const JobFacts& given, bool any_instructions) {
  JobFacts facts = switch_facts(any_instructions);
  facts.emplace_back("the binary", binary_fact());
  if (given.empty()) facts.emplace_back("the arguments", arguments_fact());
  facts.insert(facts.end(), given.begin(), given.end());
  return facts;
}

std::optional<Started> started() {
  const Identity id = control::identity_of(control::environment());
  if (!is_started(id)) return {};
  return Started{id.world, str_cat(id.source, " has started ", id.world, " processes of this program")};
}

}  // namespace weft::dist
