// Replicas as processes with the service of replicas on loopback: they are killed, stopped and started again, and so is
// the service. A replica's state is a function of the parts of the data that its steps took. At the end all states must
// be equal to the state that the journal gives. The program starts itself again as a replica or as the service.
#include "distributed/replica/replica_member.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <thread>

#include "distributed/control/group/group_server.h"
#include "distributed/control/group/replica_identity.h"
#include "distributed/control/service/journal.h"
#include "distributed/launch/launcher.h"
#include "distributed/launch/processes.h"
#include "framework/base/error.h"
#include "framework/base/testing/error_of.h"

extern char** environ;

// gRPC is not instrumented: the sanitizer does not see how it hands an operation from thread to thread.
extern "C" const char* __tsan_default_suppressions() { return "race:^grpc::"; }

namespace weft::dist {
namespace {

using std::chrono::milliseconds;
using weft::testing::expect_has;
using Clock = std::chrono::steady_clock;

constexpr const char* kToken = "secret";

uint64_t mixed(uint64_t a, uint64_t b) {
  a = (a ^ b) * 0x9e3779b97f4a7c15u;
  return a ^ (a >> 29);
}

/// The state of a model: committed steps, parts of the data that they took, and their bits.
struct Model {
  std::array<int64_t, 3> words{0, 0, 1};
  int64_t gradient(int64_t place) const {
    return static_cast<int64_t>(mixed(7, static_cast<uint64_t>(words[1] + place)));
  }
  void commit(int64_t sum, int64_t count) {
    words[0] += 1;
    words[1] += count;
    words[2] = static_cast<int64_t>(mixed(static_cast<uint64_t>(words[2]), static_cast<uint64_t>(sum)));
  }
  std::string text() const { return str_cat(words[0], " ", words[1], " ", words[2]); }
};

/// The state that the views of a journal give at the end of the run.
std::string replayed(const std::string& path, int64_t replicas) {
  std::vector<control::ReplicaView> views;
  const control::Journal journal(
      path, str_cat("weft journal of replicas 1, job 'replicas', ", replicas, " replicas"),
      [&](const std::string& record) {
        views.push_back(view_of(record, views.empty() ? control::ReplicaView() : views.back()));
        return "";
      });
  if (views.empty() || !views.back().ended) return "the run has not ended";
  const std::vector<control::ReplicaView> history = history_of(views, views.back().after);
  Model model;
  for (size_t v = 0; model.words[0] < views.back().start;) {
    while (v + 1 < history.size() && history[v + 1].start <= model.words[0]) ++v;
    const auto count = static_cast<int64_t>(history[v].members.size());
    uint64_t sum = 0;
    for (int64_t p = 0; p < count; ++p) sum += static_cast<uint64_t>(model.gradient(p));
    model.commit(static_cast<int64_t>(sum), count);
  }
  return model.text();
}

// ---- a process of a replica ----
struct ReplicaArguments {
  std::string address, name, folder, token = kToken;
  int process = 0, processes = 1;
  int64_t incarnation = 0;
};

std::optional<Error> all_reduce(Communicator& c, int64_t* words, int64_t n, ReduceOp op, Collective kind, int peer) {
  const StridedView data(words, kInt64, {n}, {1});
  return c.start({.kind = kind, .op = op, .in = data, .out = data, .peer = peer, .site = kOwnSites})
      ->wait(Clock::now() + std::chrono::seconds(60));
}

int run_replica(const ReplicaArguments& a) try {
  const auto path = [&](const char* kind) { return str_cat(a.folder, "/", a.name, kind); };
  std::unique_ptr<FolderStore> store;
  std::unique_ptr<Processes> job;
  if (a.processes > 1) {
    store = std::make_unique<FolderStore>(path(str_cat(".job", std::getenv("JOB_NUMBER")).c_str()));
    job = std::make_unique<Processes>(*store, a.processes, a.process, 1, std::chrono::seconds(60));
  }
  ReplicaMember member({.name = a.name,
                        .address = a.address,
                        .token = a.token,
                        .incarnation = a.incarnation,
                        .own = str_cat(control::kProcessesValue, " ", a.processes, "\n"),
                        .job = job.get(),
                        .store = store.get(),
                        .timeout = std::chrono::seconds(60)});
  Model model;
  const auto agree = [&](bool mine) {  // whether it is true in all processes of the replica
    int64_t word = !mine;
    if (job) job->max({&word, kInt64, {1}, {1}});
    return word == 0;
  };
  const auto exchange = [&](int64_t* words, int64_t n, Collective kind, int peer) {
    const bool leads = a.process == 0 || !member.leaders_only();
    const bool good = !leads || !all_reduce(*member.communicator(a.process), words, n, ReduceOp::kSum, kind, peer);
    if (job && member.leaders_only()) job->broadcast(0, {words, kInt64, {n}, {1}});
    return good;
  };
  std::ofstream progress(path(".progress"), std::ios::app);
  std::ofstream(path(".pid")) << getpid();
  while (!member.next_view().ended) {
    const LiveView& live = member.live();
    const auto& members = live.view.members;
    bool good = true;
    if (std::ranges::count(members, true, &control::ViewMember::heals) > 0) {
      const auto donor = std::ranges::find(members, false, &control::ViewMember::heals) - members.begin();
      std::array<int64_t, 3> words = model.words;
      good = agree(exchange(words.data(), 3, Collective::kBroadcast, static_cast<int>(donor)));
      if (live.heals && member.healed(good)) model.words = words;
    }
    while (member.has_view() && member.group_note() == 0) {
      if (std::filesystem::exists(a.folder + "/stop")) member.set_note(5);
      if (model.words[0] != member.step()) throw Error(Code::kInternal, "a step without its state");
      int64_t sum = model.gradient(member.place());
      std::this_thread::sleep_for(milliseconds(5));
      const bool summed = exchange(&sum, 1, Collective::kAllReduce, 0);
      if (!summed) member.close("a sum failed");
      const bool sums = agree(summed);
      const int64_t count = member.count();
      VoteResult result;
      int64_t note = member.note();
      if (job) job->max({&note, kInt64, {1}, {1}});
      if (a.process == 0) result = member.vote(sums, note, Clock::now() + std::chrono::seconds(60));
      if (job) {
        const std::string text = job->from_first(str_cat(result.committed ? 1 : 0, " ", result.note));
        result = {text[0] == '1', std::atoll(text.c_str() + 2)};
      }
      member.decided(result);
      if (!result.committed) continue;
      model.commit(sum, count);
      if (a.process == 0) progress << member.step() << std::endl;
    }
    if (member.has_view()) member.finish();
  }
  std::ofstream(path(str_cat(".end", a.process).c_str())) << model.text();
  return 0;
} catch (const Error& e) {
  std::fprintf(stderr, "replica %s: %s\n", a.name.c_str(), e.what());
  std::ofstream(str_cat(a.folder, "/", a.name, ".error")) << e.what();
  return 3;
}

/// A launcher of a replica of one process.
int run_launcher() {
  return launch(
             {.processes = 1, .command = {"/proc/self/exe", "--launched"}, .program = "/proc/self/exe", .name = "test"})
      .code;
}

int run_launched(const std::string& folder) {
  const control::ReplicaIdentity id = control::replica_identity().value();
  return run_replica(
      {.address = id.address, .name = id.name, .folder = folder, .token = id.token, .incarnation = id.incarnation});
}

int run_service(const std::string& address, const std::string& journal, int64_t replicas) {
  const control::GroupServer server({.address = address, .token = kToken, .journal = journal, .replicas = replicas});
  while (true) ::pause();
}

// ---- the test's processes ----
class ReplicaMembers : public ::testing::Test {
 protected:
  ReplicaMembers() {
    std::string form = ::testing::TempDir() + "/replicas_XXXXXX";
    folder_ = ::mkdtemp(form.data());
    // A free port, which a service that starts again takes again.
    address_ = control::GroupServer({.token = kToken}).address();
  }
  ~ReplicaMembers() override {
    for (const pid_t pid : all_) ::kill(pid, SIGKILL);
    for (const pid_t pid : all_) ::waitpid(pid, nullptr, 0);
  }

  pid_t spawn(const std::vector<std::string>& arguments) {
    std::vector<std::string> all = {"/proc/self/exe"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& a : all) argv.push_back(a.data());
    argv.push_back(nullptr);
    pid_t pid = 0;
    EXPECT_EQ(::posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, argv.data(), environ), 0);
    all_.push_back(pid);
    return pid;
  }
  void serve(int64_t replicas) {
    replicas_ = replicas;
    service_ = spawn({"--service", address_, journal(), str_cat(replicas)});
  }
  std::string journal() const { return folder_ + "/journal"; }
  void start(const std::string& name, const std::string& token = kToken) {
    ::setenv("JOB_NUMBER", str_cat(++jobs_).c_str(), 1);
    for (int p = 0; p < processes_; ++p)
      running_[name].push_back(spawn({"--replica", address_, name, folder_, token, str_cat(p), str_cat(processes_)}));
  }
  /// Kills the processes of a replica, the process `first` first.
  void kill_replica(const std::string& name, size_t first = 0) {
    std::vector<pid_t> pids = running_[name];
    std::swap(pids[0], pids[first]);
    for (const pid_t pid : pids) end_of(pid, SIGKILL);
    running_.erase(name);
  }
  int end_of(pid_t pid, int signal = 0) {
    int status = 0;
    if (signal) ::kill(pid, signal);
    ::waitpid(pid, &status, 0);
    std::erase(all_, pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  std::string content(const std::string& file) const {
    std::ifstream in(folder_ + "/" + file);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  /// Waits until a replica has committed this number of steps, over all its processes.
  void await(const std::string& name, int64_t steps) const {
    const auto lines = [&] {
      const std::string text = content(name + ".progress");
      return std::count(text.begin(), text.end(), '\n');
    };
    for (int i = 0; i < 12000 && lines() < steps; ++i) std::this_thread::sleep_for(milliseconds(5));
    ASSERT_GE(lines(), steps) << name;
  }
  int64_t committed(const std::string& name) const {
    const std::string text = content(name + ".progress");
    return std::count(text.begin(), text.end(), '\n');
  }
  /// All replicas end at one step, with the state that the journal gives.
  void expect_end() {
    std::ofstream(folder_ + "/stop") << "now";
    for (auto& [name, pids] : running_)
      for (const pid_t pid : pids) EXPECT_EQ(end_of(pid), 0) << name;
    end_of(service_, SIGKILL);
    const std::string state = replayed(journal(), replicas_);
    for (auto& [name, pids] : running_)
      for (size_t p = 0; p < pids.size(); ++p) EXPECT_EQ(content(str_cat(name, ".end", p)), state) << name;
    running_.clear();
  }

  std::string folder_, address_;
  int64_t replicas_ = 0;
  int processes_ = 1, jobs_ = 0;
  pid_t service_ = 0;
  std::vector<pid_t> all_;
  std::map<std::string, std::vector<pid_t>> running_;
};

TEST_F(ReplicaMembers, WithoutFaults) {
  serve(3);
  for (const char* name : {"a", "b", "c"}) start(name);
  await("a", 100);
  expect_end();
}

TEST_F(ReplicaMembers, KilledReplicasComeBack) {
  serve(3);
  for (const char* name : {"a", "b", "c"}) start(name);
  await("a", 20);
  for (const char* name : {"b", "a"}) {  // "a" has the first place
    const int64_t before = committed("c");
    kill_replica(name);
    await("c", before + 20);
    start(name);
    await(name, committed(name) + 10);  // it contributes again
  }
  expect_end();
}

TEST_F(ReplicaMembers, TheServiceMayDie) {
  serve(3);
  for (const char* name : {"a", "b", "c"}) start(name);
  await("a", 20);
  end_of(service_, SIGKILL);
  await("a", committed("a") + 20);  // steps need no service
  serve(3);
  await("a", committed("a") + 20);
  end_of(service_, SIGKILL);
  kill_replica("b");  // the others wait for the service
  std::this_thread::sleep_for(milliseconds(300));
  serve(3);
  await("a", committed("a") + 10);
  start("b");
  await("b", committed("b") + 10);
  expect_end();
}

TEST_F(ReplicaMembers, AStoppedReplicaIsLeftOutAndHeals) {
  serve(3);
  for (const char* name : {"a", "b", "c"}) start(name);
  await("b", 20);
  ::kill(running_["b"][0], SIGSTOP);
  const int64_t before = committed("a");
  std::this_thread::sleep_for(milliseconds(2500));
  await("a", before + 20);
  ::kill(running_["b"][0], SIGCONT);
  await("b", committed("b") + 10);
  expect_end();
}

TEST_F(ReplicaMembers, SparesIncarnationsAndTokens) {
  serve(2);
  for (const char* name : {"a", "b"}) start(name);
  await("a", 10);
  start("c");  // a spare
  const auto stranger = spawn({"--replica", address_, "d", folder_, "wrong", "0", "1"});
  EXPECT_EQ(end_of(stranger), 3);
  expect_has(content("d.error"), "replica 'd' has another token than the service of replicas");
  const pid_t earlier = running_["b"][0];
  running_["b"].clear();
  start("b");  // while the earlier process runs
  EXPECT_EQ(end_of(earlier), 3);
  expect_has(content("b.error"), "replica 'b' was started again; need one process for each replica");
  const int64_t before = committed("c");
  kill_replica("a");
  await("c", before + 10);  // the spare takes part
  await("b", committed("b") + 10);
  expect_end();
}

TEST_F(ReplicaMembers, ALauncherReportsADeath) {
  const control::GroupServer server({.token = kToken, .journal = journal(), .replicas = 2});
  address_ = server.address();
  start("a");
  for (const auto& [name, value] : std::map<std::string, std::string>{
           {"REPLICA", "b"}, {"REPLICAS", address_}, {"REPLICAS_TOKEN", kToken}, {"TEST_FOLDER", folder_}})
    ::setenv(name.c_str(), value.c_str(), 1);
  const pid_t launcher = spawn({"--launch"});
  await("b", 10);
  EXPECT_EQ(server.status().deaths, 0);
  ::kill(std::stoi(content("b.pid")), SIGKILL);
  EXPECT_EQ(end_of(launcher), 128 + SIGKILL);
  for (int i = 0; i < 1000 && server.status().deaths == 0; ++i) std::this_thread::sleep_for(milliseconds(10));
  EXPECT_EQ(server.status().deaths, 1);
  await("a", committed("a") + 10);
  for (const char* name : {"REPLICA", "REPLICAS", "REPLICAS_TOKEN"}) ::unsetenv(name);
}

TEST_F(ReplicaMembers, ReplicasOfSeveralProcesses) {
  processes_ = 2;
  serve(3);
  for (const char* name : {"a", "b", "c"}) start(name);
  await("a", 20);
  kill_replica("b", 1);  // its second process first
  await("a", committed("a") + 20);
  start("b");
  await("b", committed("b") + 10);
  // The second processes of the others wait for a stopped process: they learn from their leader that the view is over.
  for (const pid_t pid : running_["b"]) ::kill(pid, SIGSTOP);
  std::this_thread::sleep_for(milliseconds(2500));
  await("a", committed("a") + 20);
  for (const pid_t pid : running_["b"]) ::kill(pid, SIGCONT);
  await("b", committed("b") + 10);
  kill_replica("a");
  await("b", committed("b") + 10);
  await("c", committed("c") + 10);
  expect_end();
}

TEST_F(ReplicaMembers, ReplicasWithOtherNumbersOfProcesses) {
  serve(3);
  start("a");
  processes_ = 2;
  for (const char* name : {"b", "c"}) start(name);
  await("a", 20);
  kill_replica("a");
  await("b", committed("b") + 20);  // the other two have equal ranks
  start("a");
  await("a", committed("a") + 10);
  kill_replica("b");
  await("c", committed("c") + 20);
  processes_ = 1;
  start("b");  // in one process now
  await("b", committed("b") + 10);
  expect_end();
}

}  // namespace
}  // namespace weft::dist

int main(int argc, char** argv) {
  const std::vector<std::string> a(argv, argv + argc);
  if (argc == 2 && a[1] == "--launch") return weft::dist::run_launcher();
  if (argc == 2 && a[1] == "--launched") return weft::dist::run_launched(std::getenv("TEST_FOLDER"));
  if (argc == 5 && a[1] == "--service") return weft::dist::run_service(a[2], a[3], std::stoll(a[4]));
  if (argc == 8 && a[1] == "--replica")
    return weft::dist::run_replica({.address = a[2],
                                    .name = a[3],
                                    .folder = a[4],
                                    .token = a[5],
                                    .process = std::stoi(a[6]),
                                    .processes = std::stoi(a[7])});
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
