// Two replicas train together. One is killed at random instants, or both are, and they are started again. The run ends
// with the checkpoints and losses that one process makes from the journal, byte for byte.
// --kills=N sets the number of kills; --seed=S selects others.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <regex>
#include <sstream>
#include <thread>

#include "distributed/control/group/group_server.h"
#include "framework/base/testing/number_flags.h"
#include "framework/io/file.h"
#include "framework/io/json.h"
#include "framework/io/testing/faults.h"
#include "models/testing/tiny_family.h"
#include "models/train/checkpoint.h"
#include "models/train/trainer.h"

extern char** environ;

namespace weft {
namespace {

int64_t g_kills = 2;
uint64_t g_seed = 1;

// The parameter is the mesh of one replica.
class Elastic : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    root_ = io::testing::fast_folder();
    ASSERT_NE(root_, "");
    kernels_ = ::testing::TempDir() + "/elastic_kernels";
    restart_service();
  }
  explicit Elastic(int64_t replicas = 2, std::vector<std::string> flags = {})
      : replicas_(replicas), flags_(std::move(flags)) {}
  void TearDown() override {
    for (const auto& [name, pid] : running_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
    io::remove_all(root_);
  }

  std::string mesh() const { return str_cat("replica", replicas_, GetParam().empty() ? "" : ",", GetParam()); }

  void restart_service() {
    const std::string address = server_ ? server_->address() : "127.0.0.1:0";
    server_.reset();
    server_.emplace(
        control::GroupServerOptions{.address = address, .journal = root_ + "/journal", .replicas = replicas_});
  }

  /// Starts a process: a replica with this name, or without a name one that is none. Its output goes to root_/OUT.
  pid_t start(const std::string& name, const std::string& out, const std::string& folder,
              const std::vector<std::string>& more) {
    std::vector<std::string> args = {"elastic_test",
                                     "train",
                                     "--data=synthetic",
                                     str_cat("--batch_size=", 2 * replicas_),
                                     "--seq_len=8",
                                     "--lr=0.01",
                                     "--seed=7",
                                     "--threads=1",
                                     "--weft_verify=0",
                                     "--checkpoint_every=50",
                                     "--keep=0",
                                     "--eval_every=500",
                                     "--resume",
                                     "--mesh=" + mesh(),
                                     str_cat("--steps=", steps_),
                                     str_cat("--checkpoint_dir=", root_, "/", folder),
                                     str_cat("--metrics=", root_, "/", folder, ".jsonl"),
                                     str_cat("--weft_cache=", kernels_)};
    args.insert(args.end(), flags_.begin(), flags_.end());
    args.insert(args.end(), more.begin(), more.end());
    std::vector<std::string> variables;
    for (char** e = environ; *e; ++e) variables.emplace_back(*e);
    if (!name.empty()) {
      variables.push_back("REPLICA=" + name);
      variables.push_back("REPLICAS=" + server_->address());
    }
    std::vector<char*> argv, env;
    for (std::string& a : args) argv.push_back(a.data());
    for (std::string& v : variables) env.push_back(v.data());
    argv.push_back(nullptr);
    env.push_back(nullptr);
    const std::string path = root_ + "/" + out;
    const pid_t child = ::fork();
    if (child == 0) {
      const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
      ::dup2(file, STDOUT_FILENO);
      ::dup2(file, STDERR_FILENO);
      ::execve("/proc/self/exe", argv.data(), env.data());
      ::_exit(127);
    }
    return child;
  }
  void start_replica(const std::string& name) { running_[name] = start(name, name + ".log", "run", {}); }

  /// Waits until `state` is true. Fails if it never is.
  void wait_for(const std::string& what, const std::function<bool()>& state) {
    for (int i = 0; i < 90000; ++i) {
      if (state()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    FAIL() << "no " << what << "\n" << logs();
  }
  std::string logs() const {
    std::string all;
    for (const char* name : {"a", "b", "c"}) {
      const std::string path = str_cat(root_, "/", name, ".log");
      if (io::exists(path)) all += str_cat("== ", name, "\n", io::read_file(path));
    }
    return all;
  }
  int64_t steps_made() const {
    std::ifstream file(root_ + "/run.jsonl");
    return std::count(std::istreambuf_iterator<char>(file), {}, '\n');
  }
  bool over() const { return steps_made() >= steps_; }
  size_t members() const { return server_->status().view.members.size(); }

  /// The exit code of a replica when it ends; 128 + the signal.
  int wait_end(const std::string& name) {
    int status = 0;
    wait_for("end of " + name, [&] { return ::waitpid(running_[name], &status, WNOHANG) > 0; });
    running_.erase(name);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  /// The processes of a replica: that which was started, and its ranks.
  std::vector<pid_t> processes(const std::string& name) {
    std::vector<pid_t> all = children(running_[name]);
    all.push_back(running_[name]);
    return all;
  }
  static std::vector<pid_t> children(pid_t first) {
    std::vector<pid_t> all;
    std::ifstream file(str_cat("/proc/", first, "/task/", first, "/children"));
    for (pid_t pid; file >> pid;) all.push_back(pid);
    return all;
  }

  /// The fields of a metrics file that no clock decides, by step. A step that is there twice fails.
  std::map<int64_t, std::string> losses(const std::string& folder) {
    std::map<int64_t, std::string> all;
    std::istringstream lines(io::read_file(str_cat(root_, "/", folder, ".jsonl")));
    for (std::string line; std::getline(lines, line);) {
      const io::Json j = io::parse_json(line, "metrics");
      std::string text;
      for (const char* field : {"loss", "grad_norm", "lr", "eval_loss"})
        if (j.contains(field)) text += str_cat(field, " ", j.at(field).dump(), " ");
      const int64_t step = j.at("step").get<int64_t>();
      EXPECT_TRUE(j.contains("eval_loss") || !all.contains(step)) << "step " << step << " twice";
      all[step] += text;
    }
    return all;
  }

  /// A kill may come between a step and its checkpoint, so up to `lost` checkpoints are missing, but not the last one.
  void check_replay(int64_t lost, const std::string& journal = "journal") {
    replay(journal);
    if (HasFatalFailure()) return;
    int64_t missing = 0;
    for (int64_t step = 50; step <= steps_; step += 50) {
      const bool saved = io::is_folder(str_cat(root_, "/run/step_", step));
      EXPECT_TRUE(saved || step < steps_);
      missing += !saved;
      if (saved) expect_equal(step);
    }
    EXPECT_LE(missing, lost);
    EXPECT_EQ(losses("run"), losses("replay"));
  }
  void kill_at_random(int64_t& killed);
  void replay(const std::string& journal) {
    server_.reset();
    const pid_t child = start("", "replay.log", "replay", {str_cat("--replay=", root_, "/", journal)});
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0) << io::read_file(root_ + "/replay.log");
  }
  void expect_equal(int64_t step) {
    for (const char* file : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
      const std::string path = str_cat("/step_", step, "/", file);
      EXPECT_TRUE(io::read_file(root_ + "/run" + path) == io::read_file(root_ + "/replay" + path)) << path;
    }
  }

  const int64_t replicas_;
  const std::vector<std::string> flags_;
  std::string root_, kernels_;
  int64_t steps_ = 0;
  std::optional<control::GroupServer> server_;
  std::map<std::string, pid_t> running_;
};

/// Kills replicas at random instants, and starts them again. Sets the number of kills.
void Elastic::kill_at_random(int64_t& killed) {
  for (const char* name : {"a", "b"}) start_replica(name);
  std::mt19937_64 random(g_seed);
  const auto below = [&](int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(random); };
  int64_t alone = 0;
  for (killed = 0; killed < g_kills; ++killed) {
    // Both replicas take part in the steps now.
    int64_t at = 0;
    ASSERT_NO_FATAL_FAILURE(wait_for("view of both", [&] { return at = steps_made(), over() || members() == 2; }));
    at += 1 + below(100);
    ASSERT_NO_FATAL_FAILURE(wait_for("further steps", [&] { return over() || steps_made() > at; }));
    std::this_thread::sleep_for(std::chrono::microseconds(below(3000)));
    const bool both = below(4) == 0;
    const std::string first = below(2) ? "a" : "b", second = first == "a" ? "b" : "a";
    if (over()) break;
    const int64_t view = server_->status().view.number;
    for (const std::string& name : both ? std::vector{first, second} : std::vector{first}) {
      const std::vector<pid_t> all = processes(name);
      ::kill(all[static_cast<size_t>(below(std::ssize(all)))], SIGKILL);
    }
    EXPECT_NE(wait_end(first), 0);
    if (both) {
      EXPECT_NE(wait_end(second), 0);
    } else {
      at = steps_made() + below(100);
      ASSERT_NO_FATAL_FAILURE(wait_for("steps of one replica", [&] {
        return over() || (server_->status().view.number > view && steps_made() > at);
      }));
      ++alone;
    }
    if (over()) break;
    if (below(3) == 0) restart_service();
    start_replica(first);
    if (both) start_replica(second);
  }
  while (!running_.empty()) {
    EXPECT_EQ(wait_end(running_.begin()->first), 0) << logs();
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(killed, 0) << "the run ended before the first kill";
  std::printf("%ld kills, %ld of them of one replica, %ld views\n", killed, alone, server_->status().view.number);
}

TEST_P(Elastic, KilledReplicasComeBackAndTheRunIsItsReplay) {
  steps_ = 1000 * (1 + g_kills);
  int64_t killed = 0;
  ASSERT_NO_FATAL_FAILURE(kill_at_random(killed));
  ASSERT_NO_FATAL_FAILURE(check_replay(killed));
}

// A signal to one replica ends all of them after one step, which is saved.
TEST_P(Elastic, ASignalEndsAllAfterOneStep) {
  steps_ = 1000000;
  for (const char* name : {"a", "b"}) start_replica(name);
  ASSERT_NO_FATAL_FAILURE(wait_for("steps", [&] { return members() == 2 && steps_made() > 10; }));
  ::kill(running_["b"], SIGTERM);
  EXPECT_EQ(wait_end("a"), 143) << logs();
  EXPECT_EQ(wait_end("b"), 143) << logs();
  const int64_t step = train::newest_step(root_ + "/run");
  EXPECT_EQ(step, losses("run").rbegin()->first);
  for (const char* name : {"a", "b"})
    EXPECT_NE(io::read_file(str_cat(root_, "/", name, ".log")).find(str_cat("interrupted after step ", step)),
              std::string::npos)
        << logs();
}

// One command starts all replicas, and starts one again whose rank is killed. It goes on after the end of all
// processes.
TEST_P(Elastic, OneHostStartsItsReplicasAgain) {
  steps_ = 1500;
  int64_t killed = 0;
  for (const bool all : {true, false}) {
    running_["host"] = start("", "a.log", "run", {"--restarts=3"});
    const int64_t at = std::max<int64_t>(100, steps_made() + 100);
    ASSERT_NO_FATAL_FAILURE(wait_for("steps", [&] { return steps_made() > at; }));
    pid_t victim = running_["host"];
    if (!all) {
      // A rank of the second replica. It is the only process of it, if the mesh has no other dimension.
      const std::vector<pid_t> launchers = children(victim);
      ASSERT_EQ(launchers.size(), 2) << logs();
      victim = children(launchers[1]).at(0);
    }
    ::kill(victim, SIGKILL);
    ++killed;
    EXPECT_EQ(wait_end("host"), all ? 128 + SIGKILL : 0) << logs();
  }
  EXPECT_NE(logs().find("was killed by signal 9 (Killed); starting again"), std::string::npos) << logs();
  ASSERT_NO_FATAL_FAILURE(check_replay(killed, "run.journal"));
}

// A file beside the folder of checkpoints that this run has not written stays.
TEST_P(Elastic, OneHostLeavesOtherFiles) {
  steps_ = 10;
  const std::pair<std::string, std::string> files[] = {
      {"my notes\n", "run.journal is no journal of a coordination service"},
      {io::read_file(root_ + "/journal"), "run.journal is 'weft journal of replicas 1, job 'replicas', 2 replicas'"}};
  for (const auto& [content, text] : files) {
    io::write_file_atomic(root_ + "/run.journal", content);
    running_["host"] = start("", "a.log", "run", {"--restarts=3"});
    EXPECT_EQ(wait_end("host"), 1) << logs();
    EXPECT_NE(logs().find(text), std::string::npos) << logs();
    EXPECT_EQ(io::read_file(root_ + "/run.journal"), content);
  }
}

// Replicas that exchange outer gradients: each has a state of its own.
class ElasticDiloco : public Elastic {
 protected:
  ElasticDiloco()
      : ElasticDiloco(
            {"--diloco=20", "--outer_fragments=4", "--outer_delay=13", "--outer_alpha=0.5", "--outer_wire=int8"}) {}
  explicit ElasticDiloco(std::vector<std::string> flags) : Elastic(2, std::move(flags)) {}
  void check_checkpoints(int64_t lost, const std::string& journal) {
    replay(journal);
    if (HasFatalFailure()) return;
    int64_t missing = 0;
    for (const std::string& folder : io::list_folder(root_ + "/replay")) {
      if (!folder.starts_with("step_")) continue;
      const int64_t step = std::stoll(folder.substr(5));
      const bool saved = io::is_folder(root_ + "/run/" + folder);
      EXPECT_TRUE(saved || step < steps_);
      missing += !saved;
      if (saved) expect_equal(step);
    }
    EXPECT_LE(missing, lost);
    EXPECT_EQ(train::newest_step(root_ + "/replay"), train::newest_step(root_ + "/run"));
  }
};

TEST_P(ElasticDiloco, KilledReplicasComeBackAndTheRunIsItsReplay) {
  steps_ = 1000 * (1 + g_kills);
  int64_t killed = 0;
  ASSERT_NO_FATAL_FAILURE(kill_at_random(killed));
  ASSERT_NO_FATAL_FAILURE(check_checkpoints(killed, "journal"));
}

// A signal ends the run after an exchange, and --resume continues from its checkpoint.
TEST_P(ElasticDiloco, OneHostGoesOnAfterASignal) {
  steps_ = 600;
  running_["host"] = start("", "a.log", "run", {});
  ASSERT_NO_FATAL_FAILURE(wait_for("steps", [&] { return steps_made() > 100; }));
  ::kill(running_["host"], SIGTERM);
  EXPECT_EQ(wait_end("host"), 143) << logs();
  const int64_t step = train::newest_step(root_ + "/run");
  EXPECT_EQ(step % 5, 3);
  EXPECT_NE(logs().find(str_cat("interrupted after step ", step)), std::string::npos) << logs();
  EXPECT_NE(logs().find("for each step and replica\n"), std::string::npos) << logs();
  running_["host"] = start("", "a.log", "run", {});
  EXPECT_EQ(wait_end("host"), 0) << logs();
  EXPECT_NE(logs().find("diloco: this replica has sent "), std::string::npos) << logs();
  ASSERT_NO_FATAL_FAILURE(check_checkpoints(0, "run.journal"));
}

// Replicas on different meshes, with different numbers of rows. One dies, and comes back on another mesh, for which the
// other one waits.
class ElasticOnOtherMeshes : public ElasticDiloco {
 protected:
  ElasticOnOtherMeshes()
      : ElasticDiloco({"--diloco=10", "--outer_fragments=2", "--outer_delay=7", "--verify_numerics"}) {}
};

TEST_P(ElasticOnOtherMeshes, TheRunIsItsReplay) {
  steps_ = 200;
  server_.reset();
  server_.emplace(control::GroupServerOptions{.journal = root_ + "/journal", .replicas = 2, .replicas_min = 2});
  running_["a"] = start("a", "a.log", "run", {"--outer_rows=2"});
  running_["b"] = start("b", "b.log", "run", {"--mesh=replica2,fsdp2", "--outer_rows=4"});
  ASSERT_NO_FATAL_FAILURE(wait_for("steps of both", [&] { return steps_made() > 60; }));
  ::kill(running_["b"], SIGKILL);
  EXPECT_EQ(wait_end("b"), 128 + SIGKILL) << logs();
  running_["b"] = start("b", "b.log", "run", {"--mesh=replica2,tp2", "--outer_rows=1"});
  for (const char* name : {"a", "b"}) EXPECT_EQ(wait_end(name), 0) << logs();
  EXPECT_NE(logs().find(" for each step and replica, 2 rows of this replica in a step\n"), std::string::npos) << logs();
  EXPECT_NE(logs().find("replica b has the state of step "), std::string::npos) << logs();
  ASSERT_NO_FATAL_FAILURE(check_checkpoints(0, "journal"));
}

class ElasticOfThree : public Elastic {
 protected:
  ElasticOfThree() : Elastic(3) {}
};

// One of the two that give the state to the third has resumed from a checkpoint before, and the other one has not.
TEST_P(ElasticOfThree, EachComesBack) {
  steps_ = 1000000;
  for (const char* name : {"a", "b", "c"}) start_replica(name);
  for (const char* name : {"a", "b", "c"}) {
    int64_t at = 0;
    const auto further = [&] { return steps_made() > at + 60; };  // a checkpoint is among these steps
    ASSERT_NO_FATAL_FAILURE(wait_for("view of all", [&] { return at = steps_made(), members() == 3; }));
    ASSERT_NO_FATAL_FAILURE(wait_for("steps of all", further));
    ::kill(running_[name], SIGKILL);
    EXPECT_EQ(wait_end(name), 128 + SIGKILL) << logs();
    ASSERT_NO_FATAL_FAILURE(wait_for("view of two", [&] { return at = steps_made(), members() == 2; }));
    ASSERT_NO_FATAL_FAILURE(wait_for("steps of two", further));
    start_replica(name);
  }
  ASSERT_NO_FATAL_FAILURE(wait_for("end of healing", [&] {
    return members() == 3 && logs().find("replica c has the state of step") != std::string::npos;
  }));
  ::kill(running_["b"], SIGTERM);
  for (const char* name : {"a", "b", "c"}) EXPECT_EQ(wait_end(name), 143) << logs();
}

INSTANTIATE_TEST_SUITE_P(Mesh, ElasticOnOtherMeshes, ::testing::Values(""),
                         [](const auto&) { return std::string("alone"); });
INSTANTIATE_TEST_SUITE_P(Mesh, ElasticOfThree, ::testing::Values(""), [](const auto&) { return std::string("alone"); });
INSTANTIATE_TEST_SUITE_P(Mesh, ElasticDiloco, ::testing::Values("", "fsdp2"),
                         [](const auto& info) { return info.param.empty() ? std::string("alone") : info.param; });
INSTANTIATE_TEST_SUITE_P(Mesh, Elastic, ::testing::Values("", "fsdp2"),
                         [](const auto& info) { return info.param.empty() ? std::string("alone") : info.param; });

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  using namespace weft;
  if (argc > 2 && std::string(argv[1]) == "train") {
    argv[1] = argv[0];
    return train::train_main(argc - 1, argv + 1, weft::testing::tiny_family());
  }
  if (!weft::testing::read_flags(argc, argv, {{"kills", &g_kills}, {"seed", &g_seed}})) return 2;
  return RUN_ALL_TESTS();
}
