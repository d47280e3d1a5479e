// Training runs whose processes are killed go on from states in memory, and end with the files of an undisturbed run.
// Kills come at file operations of a state that is being written, and at steps, both chosen by a seed: of one rank, of
// rank 0, of all ranks, of a process without a mesh. --kills=N sets the kills of a run; --seed=S selects others.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <regex>
#include <sstream>
#include <thread>

#include "distributed/launch/held_memory.h"
#include "framework/base/testing/number_flags.h"
#include "framework/io/file.h"
#include "framework/io/testing/faults.h"
#include "models/testing/tiny_family.h"
#include "models/train/checkpoint.h"
#include "models/train/trainer.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using io::testing::Fault;

int64_t g_kills = 6;
uint64_t g_seed = 1;

int64_t lines(const std::string& path) {
  std::ifstream file(path);
  return std::count(std::istreambuf_iterator<char>(file), {}, '\n');
}

bool has_ended(pid_t pid) {
  siginfo_t info = {};
  return ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != 0;
}

/// main() of a child: memory_test train PLAN FLAGS... PLAN has a line "START RANK CALL FAULT" for each kill: the rank,
/// at this start, is killed at this file operation in the folder of states in memory.
int run_child(int argc, char** argv) {
  const std::string plan = argv[2];
  argv[2] = argv[0];
  if (const char* const rank = std::getenv("RANK")) {
    const std::string starts = str_cat(plan, ".starts.", rank);
    std::ofstream(starts, std::ios::app) << "start\n";
    std::ifstream file(plan);
    int64_t start = 0, of = 0, call = 0;
    for (int fault = 0; file >> start >> of >> call >> fault;)
      if (start == lines(starts) && of == std::atoll(rank)) {
        const char* const dir = std::getenv("MEMORY_TEST_DIR");
        io::testing::set_fault(dir ? dir : std::getenv(dist::kMemoryVariable), call, static_cast<Fault>(fault));
      }
  }
  return train::train_main(argc - 2, argv + 2, testing::tiny_family());
}

struct Outcome {
  int code = 0;
  std::string out, err;
};

class Memory : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = io::testing::fast_folder();
    ASSERT_NE(root_, "");
    kernels_ = ::testing::TempDir() + "/memory_kernels";  // on a disk: a file system in memory may refuse to run code
  }
  void TearDown() override { io::remove_all(root_); }

  /// Trains in root_/NAME; `meanwhile` gets the process.
  Outcome run(const std::string& name, const std::vector<std::string>& more,
              const std::function<void(pid_t)>& meanwhile = {}) {
    const std::string dir = root_ + "/" + name;
    std::vector<std::string> args = {"memory_test",
                                     "train",
                                     dir + ".plan",
                                     "--data=synthetic",
                                     "--batch_size=4",
                                     "--seq_len=8",
                                     "--lr=0.01",
                                     "--seed=7",
                                     "--threads=1",
                                     "--weft_verify=0",
                                     "--keep=0",
                                     "--checkpoint_every=40",
                                     str_cat("--steps=", kSteps),
                                     str_cat("--checkpoint_dir=", dir, "/steps"),
                                     str_cat("--metrics=", dir, "/metrics.jsonl"),
                                     str_cat("--weft_cache=", kernels_)};
    args.insert(args.end(), more.begin(), more.end());
    std::vector<char*> argv;
    for (std::string& a : args) argv.push_back(a.data());
    argv.push_back(nullptr);
    io::make_folders(dir);
    const std::string out = dir + ".out", err = dir + ".err";
    const pid_t child = ::fork();
    if (child == 0) {
      ::dup2(::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666), STDOUT_FILENO);
      ::dup2(::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666), STDERR_FILENO);
      ::execv("/proc/self/exe", argv.data());
      ::_exit(127);
    }
    if (meanwhile) meanwhile(child);
    int status = 0;
    ::waitpid(child, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, io::read_file(out), io::read_file(err)};
  }

  /// The lines of a metrics file without the clock's values.
  std::string metrics(const std::string& name) {
    static const std::regex clock(R"re("(step_ms|tokens_per_s|mfu)":[^,}]*,?|"ranks":\{[^}]*\},?)re");
    return std::regex_replace(io::read_file(root_ + "/" + name + "/metrics.jsonl"), clock, "");
  }

  /// All files of the run equal the files of the undisturbed run "calm".
  void check_equal(const std::string& name) {
    EXPECT_EQ(metrics(name), metrics("calm"));
    const std::string got = root_ + "/" + name + "/steps", need = root_ + "/calm/steps";
    EXPECT_EQ(io::list_folder(got), io::list_folder(need));
    for (const auto& entry : fs::recursive_directory_iterator(need)) {
      const std::string file = fs::relative(entry.path(), need);
      if (entry.is_regular_file() && io::base_name(file) != ".lock") {
        EXPECT_TRUE(io::read_file(got + "/" + file) == io::read_file(entry.path())) << file << " differs";
      }
    }
    EXPECT_EQ(io::list_folder(root_ + "/" + name).size(), 2u) << "other files beside steps and metrics.jsonl";
  }

  /// The steps from which processes were started again.
  static std::vector<int64_t> restarts(const std::string& err) {
    static const std::regex line("starting again from (?:step ([0-9]+)|the beginning)");
    std::vector<int64_t> steps;
    for (std::sregex_iterator it(err.begin(), err.end(), line), end; it != end; ++it)
      steps.push_back((*it)[1].matched ? std::stoll((*it)[1]) : 0);
    return steps;
  }

  static constexpr int64_t kSteps = 100;
  std::string root_, kernels_;
};

struct Case {
  std::string name;
  std::vector<std::string> flags;
  int ranks = 1;
};
const Case kCases[] = {{"one", {}, 1}, {"fsdp2", {"--mesh=fsdp2"}, 2}};

std::vector<std::string> with(std::vector<std::string> flags, const std::vector<std::string>& more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

// A kill at any file operation of a state leaves the state before it, or the whole new one.
TEST_F(Memory, KilledWhileAStateIsWritten) {
  std::mt19937_64 random(g_seed);
  for (const Case& c : kCases)
    for (const bool folder : {false, true}) {
      SCOPED_TRACE(str_cat(c.name, folder ? " in --memory_dir" : ""));
      ASSERT_EQ(run("calm", c.flags).code, 0);
      std::ofstream plan(root_ + "/killed.plan");
      // Only the first process names files; others write to files, which the faults see in a folder.
      for (int64_t k = 1; k <= g_kills; ++k) {
        const auto rank = folder ? static_cast<int64_t>(random() % static_cast<uint64_t>(c.ranks)) : 0;
        plan << k << " " << rank << " " << random() % (rank > 0 ? 20 : 60) << " "
             << static_cast<int>(random() % 2 ? Fault::kKill : Fault::kKillHalfway) << "\n";
      }
      plan.close();
      const std::string dir = root_ + "/states";
      if (folder) ::setenv("MEMORY_TEST_DIR", dir.c_str(), 1);
      auto flags = with(c.flags, {str_cat("--restarts=", g_kills), "--memory_every=1"});
      if (folder) flags.push_back("--memory_dir=" + dir);
      const Outcome o = run("killed", flags);
      ::unsetenv("MEMORY_TEST_DIR");
      ASSERT_EQ(o.code, 0) << o.err;
      const std::vector<int64_t> steps = restarts(o.err);
      EXPECT_GE(steps.size(), 1u) << o.err;
      EXPECT_TRUE(std::is_sorted(steps.begin(), steps.end())) << o.err;
      check_equal("killed");
      if (folder) {
        EXPECT_TRUE(io::list_folder(dir).empty()) << "states are left";
      }
      for (const std::string& name : io::list_folder(root_)) io::remove_all(root_ + "/" + name);
    }
}

std::vector<pid_t> children_of(pid_t pid) {
  const auto id = static_cast<int64_t>(pid);
  std::ifstream file(str_cat("/proc/", id, "/task/", id, "/children"));
  std::vector<pid_t> all;
  for (pid_t child; file >> child;) all.push_back(child);
  return all;
}

/// The step of the newest state in memory of a rank's launcher; -1: there is none.
int64_t newest_in_memory(pid_t rank) try {
  std::ifstream file(str_cat("/proc/", static_cast<int64_t>(rank), "/environ"));
  const std::string key = std::string(dist::kMemoryVariable) + "=";
  int64_t newest = -1;
  for (std::string line; std::getline(file, line, '\0');) {
    const std::string folder = line.starts_with(key) ? line.substr(key.size()) : "";
    if (!io::is_folder(folder)) continue;
    for (const std::string& name : io::list_folder(folder))
      if (io::is_folder(folder + "/" + name)) newest = std::max(newest, train::newest_step(folder + "/" + name));
  }
  return newest;
} catch (const Error&) {  // the launcher has removed the folder
  return -1;
}

// Kills while steps are computed, of one rank, of the first, and of all. A restart loses no state that was complete.
TEST_F(Memory, KilledBetweenStates) {
  std::mt19937_64 random(g_seed);
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    ASSERT_EQ(run("calm", c.flags).code, 0);
    std::vector<int64_t> seen;  // the newest state before each kill
    const auto kill_ranks = [&](pid_t launcher) {
      for (int64_t k = 1; k <= g_kills; ++k) {
        const int64_t line = k * kSteps / (g_kills + 2) + static_cast<int64_t>(random() % 8);
        std::vector<pid_t> ranks;
        int64_t newest = -1;
        while (!has_ended(launcher)) {
          ranks = children_of(launcher);
          newest = ranks.empty() ? -1 : newest_in_memory(ranks[0]);
          if (newest > (seen.empty() ? 0 : seen.back()) && lines(root_ + "/killed/metrics.jsonl") >= line) break;
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        if (has_ended(launcher)) return;
        seen.push_back(newest);
        const uint64_t which = random() % 3;
        for (size_t r = 0; r < ranks.size(); ++r)
          if (which == 2 || r == which % ranks.size()) ::kill(ranks[r], SIGKILL);
      }
    };
    const Outcome o = run("killed", with(c.flags, {str_cat("--restarts=", g_kills), "--memory_every=3"}), kill_ranks);
    ASSERT_EQ(o.code, 0) << o.err;
    const std::vector<int64_t> steps = restarts(o.err);
    ASSERT_LE(steps.size(), seen.size()) << o.err;  // a process may end before it is killed
    for (size_t i = 0; i < steps.size(); ++i) EXPECT_GE(steps[i], seen[i]) << "restart " << i << "\n" << o.err;
    check_equal("killed");
    for (const std::string& name : io::list_folder(root_)) io::remove_all(root_ + "/" + name);
  }
}

// Another launcher starts the program again with --resume.
TEST_F(Memory, AFolderOutlivesTheProcess) {
  const std::vector<std::string> longer = {"--steps=20000", "--checkpoint_every=10000"};
  ASSERT_EQ(run("calm", longer).code, 0);
  const std::string dir = root_ + "/states";
  const auto flags = with({"--memory_every=5", "--memory_dir=" + dir}, longer);
  const auto has_state = [&] {
    if (!io::is_folder(dir)) return false;
    for (const std::string& run : io::list_folder(dir))
      if (train::newest_step(dir + "/" + run) > 0) return true;
    return false;
  };
  const Outcome killed = run("killed", flags, [&](pid_t pid) {
    while (!has_state() && !has_ended(pid)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ::kill(pid, SIGKILL);
  });
  EXPECT_EQ(killed.code, -1);
  const Outcome fresh = run("killed", flags);
  EXPECT_EQ(fresh.code, 2);
  EXPECT_NE(fresh.err.find("has states of an earlier run; add --resume"), fresh.err.npos) << fresh.err;
  const Outcome o = run("killed", with(flags, {"--resume"}));
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("resumed from " + dir + "/weft-steps-"), o.out.npos) << o.out;
  check_equal("killed");
  EXPECT_TRUE(io::list_folder(dir).empty());
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  if (argc > 3 && std::string(argv[1]) == "train") return weft::run_child(argc, argv);
  using namespace weft;
  if (!weft::testing::read_flags(argc, argv, {{"kills", &g_kills}, {"seed", &g_seed}})) return 2;
  return RUN_ALL_TESTS();
}
