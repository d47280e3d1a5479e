// A training run that saves a checkpoint after each step is killed at random instants, and its file operations fail one
// by one. Each time, the remaining checkpoints are complete and have the bits of an undisturbed run, no step is lost,
// and the run can be resumed. The same while checkpoints are written asynchronously; and a signal that comes meanwhile.
// --kills=N and --faults=N set the numbers of kills and faults; --seed=S selects others.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <numeric>
#include <random>
#include <regex>
#include <thread>

#include "framework/base/testing/number_flags.h"
#include "framework/cli/cli.h"
#include "framework/io/file.h"
#include "framework/io/testing/faults.h"
#include "models/testing/tiny_family.h"
#include "models/train/checkpoint.h"
#include "models/train/trainer.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using io::testing::Fault;

int64_t g_kills = 6, g_faults = 4;
uint64_t g_seed = 1;

/// main() of a child: crash_test train FOLDER AT FAULT FLAGS... If its call is held, the child makes FOLDER/held.
/// If FOLDER/wait exists, a signal releases the call, and the child then removes FOLDER/wait.
int run_child(int argc, char** argv) {
  const std::string folder = argv[2];
  const auto fault = static_cast<Fault>(std::atoi(argv[4]));
  io::testing::set_fault(folder, std::atoll(argv[3]), fault);
  if (fault == Fault::kHold)
    std::thread([folder] {
      io::testing::wait_for_hold();
      io::write_file_atomic(folder + "held", "");
      while (!interrupted()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (!io::exists(folder + "wait")) return;
      io::testing::release();
      io::remove_all(folder + "wait");
    }).detach();
  argv[4] = argv[0];
  const int code = train::train_main(argc - 4, argv + 4, testing::tiny_family());
  std::printf("calls %ld\n", io::testing::total_calls());
  return code;
}

struct Outcome {
  int code = 0;  // -1: killed
  double seconds = 0;
  std::string out, err;
};

// The parameter decides whether checkpoints are written asynchronously.
class Crash : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    root_ = io::testing::fast_folder();
    ASSERT_NE(root_, "");
    // On a disk, because a file system in memory may refuse to run code.
    kernels_ = ::testing::TempDir() + "/crash_kernels";
    io::remove_all(kernels_);
  }
  void TearDown() override { io::remove_all(root_); }

  /// Trains in root_/NAME until the end, a fault, or SIGKILL after `seconds`. `watch` is called again and again with
  /// the child and the seconds that have passed.
  Outcome run(const std::string& name, const std::vector<std::string>& more, double seconds = 1e9, int64_t at = -1,
              Fault fault = Fault::kKill, const std::function<void(pid_t, double)>& watch = {}) {
    const std::string dir = root_ + "/" + name;
    std::vector<std::string> args = {"crash_test",
                                     "train",
                                     dir + "/",
                                     std::to_string(at),
                                     std::to_string(static_cast<int>(fault)),
                                     "--data=synthetic",
                                     "--batch_size=2",
                                     "--seq_len=8",
                                     "--lr=0.01",
                                     "--seed=7",
                                     "--threads=1",
                                     "--weft_verify=0",
                                     "--resume",
                                     "--checkpoint_every=1",
                                     str_cat("--steps=", steps_),
                                     str_cat("--checkpoint_dir=", dir, "/steps"),
                                     str_cat("--metrics=", dir, "/metrics.jsonl"),
                                     str_cat("--weft_cache=", kernels_)};
    args.insert(args.end(), more.begin(), more.end());
    std::vector<char*> argv;
    for (std::string& a : args) argv.push_back(a.data());
    argv.push_back(nullptr);
    io::make_folders(dir);
    const std::string out = dir + ".out", err = dir + ".err";
    for (const std::string& path : {out, err})
      io::write_file_atomic(path, "");  // the kill may come before the child opens it
    const auto begin = std::chrono::steady_clock::now();
    const pid_t child = ::fork();
    if (child == 0) {
      ::dup2(::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666), STDOUT_FILENO);
      ::dup2(::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666), STDERR_FILENO);
      ::execv("/proc/self/exe", argv.data());
      ::_exit(127);
    }
    const auto passed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
    int status = 0;
    while (::waitpid(child, &status, WNOHANG) == 0) {
      if (passed() > seconds) ::kill(child, SIGKILL);
      if (watch) watch(child, passed());
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    EXPECT_TRUE(WIFEXITED(status) || WTERMSIG(status) == SIGKILL) << "signal " << WTERMSIG(status);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, passed(), io::read_file(out), io::read_file(err)};
  }

  /// The undisturbed run, all of whose checkpoints are kept.
  void run_whole(const std::vector<std::string>& flags) {
    const Outcome o = run("whole", [&] {
      auto all = flags;
      all.push_back("--keep=0");
      return all;
    }());
    ASSERT_EQ(o.code, 0) << o.err;
    ASSERT_EQ(check_steps("whole"), steps_);
    seconds_ = o.seconds;
    calls_ = std::stoll(o.out.substr(o.out.find("\ncalls ") + 7));  // the calls of the first process
  }

  /// Every folder step_N is complete and has the bits of the whole run. Returns the newest N, 0 if there is none.
  int64_t check_steps(const std::string& name) {
    const std::string dir = root_ + "/" + name + "/steps";
    if (!io::is_folder(dir)) return 0;
    for (const std::string& step : io::list_folder(dir)) {
      if (!step.starts_with("step_") || step.find(".tmp-") != step.npos) continue;
      const std::string got = dir + "/" + step, need = root_ + "/whole/steps/" + step;
      EXPECT_EQ(io::list_folder(got), io::list_folder(need)) << got << " is not complete";
      if (HasFailure()) return 0;
      for (const char* file : {"/model.safetensors", "/optimizer.safetensors"})
        EXPECT_TRUE(io::read_file(got + file) == io::read_file(need + file)) << got << file << " has other bits";
      train::TrainState a = train::read_state(got), b = train::read_state(need);
      EXPECT_EQ(std::tie(a.step, a.samples, a.seed, a.loss_scale, a.good_steps, a.model, a.run),
                std::tie(b.step, b.samples, b.seed, b.loss_scale, b.good_steps, b.model, b.run));
    }
    const std::string newest = train::latest_checkpoint(dir);
    return newest.empty() ? 0 : train::read_state(newest).step;
  }

  /// The lines of a metrics file without the clock's values.
  std::string metrics(const std::string& name) {
    static const std::regex clock(R"re("(step_ms|tokens_per_s|mfu)":[^,}]*,?)re");
    return std::regex_replace(io::read_file(root_ + "/" + name + "/metrics.jsonl"), clock, "");
  }

  /// Resumes until the end: the result equals the whole run's result, and no temporary file remains.
  void check_end(const std::string& name, const std::vector<std::string>& flags) {
    const Outcome o = run(name, flags);
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(check_steps(name), steps_);
    EXPECT_EQ(metrics(name), metrics("whole"));
    for (const std::string& step : io::list_folder(root_ + "/" + name + "/steps"))
      EXPECT_EQ(step.find(".tmp-"), step.npos) << step << " is left over";
  }

  std::string root_, kernels_;
  int64_t steps_ = 0;
  double seconds_ = 0;  // duration of the whole run
  int64_t calls_ = 0;   // calls of the whole run that change files
};

TEST_P(Crash, KilledAtRandomInstants) {
  steps_ = 300;  // more than half of the time
  const std::vector<std::string> flags = {"--keep=2", str_cat("--checkpoint_async=", GetParam())};
  ASSERT_NO_FATAL_FAILURE(run_whole({}));  // compiles the kernels
  io::remove_all(root_ + "/whole");
  ASSERT_NO_FATAL_FAILURE(run_whole({}));
  std::mt19937_64 random(g_seed);
  int64_t newest = 0, ends = 0, steps = 0;
  for (int64_t k = 0; k < g_kills; ++k) {
    const double seconds = std::uniform_real_distribution<>(0, seconds_)(random);
    SCOPED_TRACE(str_cat("kill ", k, " after ", seconds, " s at step ", newest));
    // Kills while kernels are compiled and stored, too.
    if (k % 20 == 19) io::remove_all(kernels_);
    const Outcome o = run("killed", flags, seconds);
    EXPECT_LE(o.code, 0) << o.err;
    const int64_t now = check_steps("killed");
    EXPECT_GE(now, newest) << "a step is lost";
    if (HasFailure()) return;
    steps += now - newest;
    newest = now;
    if (o.code == 0 || newest == steps_) {  // from the beginning again
      ASSERT_NO_FATAL_FAILURE(check_end("killed", flags));
      io::remove_all(root_ + "/killed");
      newest = 0;
      ++ends;
    }
  }
  ASSERT_NO_FATAL_FAILURE(check_end("killed", flags));
  std::printf("%ld kills within %.3g s each, %ld steps, %ld whole runs\n", g_kills, seconds_, steps, ends + 1);
}

TEST_P(Crash, FileOperationsFail) {
  steps_ = 20;
  const std::vector<std::string> flags = {"--keep=1", "--dtype=f16", "--checkpoint_errors=stop",
                                          str_cat("--checkpoint_async=", GetParam())};
  ASSERT_NO_FATAL_FAILURE(run_whole({"--dtype=f16"}));
  // Each fault at each call of about two checkpoints in the middle of the run.
  const int64_t per_step = calls_ / steps_, first = 10 * per_step,
                all = 2 * per_step * std::ssize(io::testing::kFaults);
  std::mt19937_64 random(g_seed);
  std::vector<int64_t> cases(static_cast<size_t>(all));
  std::iota(cases.begin(), cases.end(), 0);
  std::shuffle(cases.begin(), cases.end(), random);
  cases.resize(static_cast<size_t>(std::min(g_faults, all)));
  int64_t killed = 0, failed = 0;
  for (int64_t c : cases) {
    const Fault fault = io::testing::kFaults[c % std::ssize(io::testing::kFaults)];
    const int64_t at = first + c / std::ssize(io::testing::kFaults);
    SCOPED_TRACE(str_cat("fault ", static_cast<int>(fault), " at call ", at));
    io::remove_all(root_ + "/failed");
    const Outcome o = run("failed", flags, 1e9, at, fault);
    (o.code < 0 ? killed : failed) += 1;
    if (fault == Fault::kKill || fault == Fault::kKillHalfway) {
      EXPECT_EQ(o.code, -1);
    } else if (o.code != 0) {  // no more than one line, which names the path
      EXPECT_EQ(o.code, 1);
      EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
      EXPECT_NE(o.err.find(root_ + "/failed/"), o.err.npos) << o.err;
    }
    EXPECT_GT(check_steps("failed"), 1);
    if (HasFailure()) return;
    ASSERT_NO_FATAL_FAILURE(check_end("failed", flags));
  }
  std::printf("%ld killed, %ld failed, of %ld possible\n", killed, failed, all);
}

struct CrashOfProcesses : Crash {};

INSTANTIATE_TEST_SUITE_P(Saves, Crash, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "asynchronous" : "blocking"; });

// Two processes write the shards of their ranks. Each has the fault once. A failed save is one warning, and the
// run continues.
TEST_F(CrashOfProcesses, SavesAreThoseOfABlockingRun) {
  steps_ = 12;
  const std::vector<std::string> mesh = {"--mesh=fsdp2", "--ranks=processes", "--keep=0"};
  ASSERT_NO_FATAL_FAILURE(run_whole(mesh));
  std::vector<std::string> async = mesh;
  async.push_back("--checkpoint_async");
  const Outcome good = run("async", async);
  EXPECT_EQ(good.code, 0) << good.err;
  EXPECT_EQ(check_steps("async"), steps_);
  EXPECT_EQ(good.err, "");
  const Outcome bad = run("broken", async, 1e9, calls_ / 2, Fault::kBroken);
  EXPECT_EQ(bad.code, 0) << bad.err;
  EXPECT_EQ(check_steps("broken"), steps_);
  EXPECT_TRUE(std::regex_match(
      bad.err, std::regex(R"re((weft: step \d+ is not saved: .*; training goes on \(--checkpoint_errors\)\n){2})re")))
      << bad.err;
}

using CrashBySignal = Crash;

// The save of step 10 is held when SIGTERM comes. After the first signal the run waits for the save, and makes the last
// one; after a second signal, more than a second later, the save of step 5 is the newest. A signal is repeated until
// the process reacts.
TEST_P(CrashBySignal, ASignalWaitsForTheSaveAndASecondOneDoesNot) {
  const bool goes_on = GetParam();
  const auto flags = [](int64_t steps) {
    return std::vector<std::string>{"--checkpoint_async", "--checkpoint_every=5", str_cat("--steps=", steps)};
  };
  int64_t calls[2];  // the calls of runs of 5 and 10 steps
  for (const int i : {0, 1}) {
    const std::string out = run(str_cat("calls", i), flags(5 * i + 5)).out;
    calls[i] = std::stoll(out.substr(out.rfind("calls ") + 6));
  }
  const std::string dir = root_ + "/held", steps = dir + "/steps";
  io::make_folders(dir);
  if (goes_on) io::write_file_atomic(dir + "/wait", "");
  double last = 0;
  const Outcome o =
      run("held", flags(1000000), 1e9, (calls[0] + calls[1]) / 2, Fault::kHold, [&](pid_t child, double now) {
        const bool held = io::exists(dir + "/held") && (!goes_on || io::exists(dir + "/wait"));
        if (!held || now - last < 0.1) return;
        ::kill(child, SIGTERM);
        last = now;
      });
  EXPECT_EQ(o.code, 143) << o.err;
  const int64_t newest = train::read_state(train::latest_checkpoint(steps)).step;
  if (goes_on) {
    EXPECT_GE(newest, 10);
    EXPECT_TRUE(io::exists(steps + "/step_10/state.json"));
    EXPECT_NE(o.out.find(str_cat("interrupted after step ", newest, "; go on with --resume")), o.out.npos) << o.out;
  } else {
    EXPECT_EQ(newest, 5);
  }
  const Outcome again = run("held", flags(newest + 1));
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(train::read_state(train::latest_checkpoint(steps)).step, newest + 1);
  for (const std::string& name : io::list_folder(steps)) EXPECT_EQ(name.find(".tmp-"), name.npos) << name;
}

INSTANTIATE_TEST_SUITE_P(Saves, CrashBySignal, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "once" : "twice"; });

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  if (argc > 5 && std::string(argv[1]) == "train") return weft::run_child(argc, argv);
  using namespace weft;
  if (!weft::testing::read_flags(argc, argv, {{"kills", &g_kills}, {"faults", &g_faults}, {"seed", &g_seed}})) return 2;
  return RUN_ALL_TESTS();
}
