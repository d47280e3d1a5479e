// Faults in jobs of real processes: the launcher's last line names rank, kind and collective, and the kept records say
// the same. The test starts itself for each rank.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "distributed/diagnose/diagnosis.h"
#include "distributed/launch/compile.h"
#include "distributed/launch/launcher.h"
#include "distributed/launch/processes.h"
#include "distributed/launch/world.h"
#include "framework/dispatch/flight.h"
#include "framework/io/file.h"
#include "weft.h"

namespace weft::dist {
namespace {

using std::chrono::milliseconds;

std::string self;

// ---- a rank ----

struct Training {
  Parameter up{ones({16, 32}) * 0.01, "up"}, down{ones({32, 16}) * 0.01, "down"};
  Tensor operator()(const Tensor& x) {
    const Tensor loss = sum(matmul(relu(matmul(x, up.value())), down.value()));
    const std::vector<Tensor> g = grad(loss, {up.value(), down.value()});
    up.set(up.value() - g[0] * 0.1);
    down.set(down.value() - g[1] * 0.1);
    return loss;
  }
};

// Starts a planned collective by hand.
void start(RankContext& me, const diagnose::PlannedRow& row) {
  const auto n = static_cast<size_t>(row.bytes / itemsize(row.dtype));
  std::vector<double> in(n), out(n);
  CommRequest r{.kind = row.kind, .op = row.op, .site = row.site};
  if (row.kind != Collective::kBarrier) {
    r.in = {in.data(), row.dtype, {static_cast<int64_t>(n)}, {1}};
    r.out = r.in;
    r.out.data = out.data();
  }
  me.run(row.axes, r);
}

// A step as it is planned, which rank 1 changes.
void step_by_hand(World& world, const std::string& fault) {
  const int rank = world.local()[0];
  const std::string path = str_cat(flight::folder(), "/", diagnose::planned_name(rank, 1));
  const diagnose::PlannedStep plan = diagnose::parse_planned(io::read_file(path), path);
  std::vector<diagnose::PlannedRow> rows = plan.programs[0];
  if (rank == 1) {
    const auto victim = rows.begin();  // the gradients
    diagnose::PlannedRow extra = *victim;
    extra.site = 4711;
    if (fault == "drop") rows.erase(victim);
    if (fault == "extra") rows.insert(victim, extra);
    if (fault == "resize") victim->bytes *= 2;
    if (fault == "retype") victim->dtype = kInt32;
  }
  world.run([&](int r) {
    RankContext& me = world.rank(r);
    me.timeout = milliseconds(1500);
    me.begin_step(1);
    for (const diagnose::PlannedRow& row : rows) start(me, row);
    me.end_step();
  });
}

void run_rank(const std::string& fault) {
  const int rank = std::atoi(std::getenv("RANK"));
  const bool guilty = rank == 1;
  FolderStore store(std::getenv("JOB_STORE"));
  Processes::set_current(std::make_unique<Processes>(store, 2, rank, 1, std::chrono::seconds(60)));
  auto step = compile(Training(), {.mesh = Mesh::parse("dp2"), .timeout = 1.5});
  const Tensor x = ones({8, 16});
  for (int k = 0; k < 5; ++k) {
    {
      const flight::HostPhase phase(flight::Phase::kLoader);
      if (guilty && k == 3 && fault == "loader") std::this_thread::sleep_for(milliseconds(2500));
    }
    if (guilty && k == 3) {
      if (fault == "kill") kill(getpid(), SIGKILL);
      if (fault == "stop") kill(getpid(), SIGSTOP);
      if (fault == "exit") std::exit(3);
      if (fault == "delay") std::this_thread::sleep_for(milliseconds(2500));
    }
    step(x);
  }
  if (fault == "checkpoint") {
    const flight::HostPhase phase(flight::Phase::kCheckpoint);
    if (guilty) std::this_thread::sleep_for(milliseconds(2500));
  }
  if (fault == "killed together") {
    const flight::HostPhase phase(flight::Phase::kEvaluation);
    std::ofstream(str_cat(flight::folder(), "/pid.", rank)) << getpid() << std::endl;
    std::this_thread::sleep_for(std::chrono::seconds(guilty ? 60 : 0));
  }
  if (fault == "throw") step.world().run([&](int r) { WEFT_CHECK(r != 1, "no more data"); });
  step_by_hand(step.world(), fault);
  Processes::current()->barrier();
  Processes::set_current({});
}

// ---- the job ----

std::string content(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

struct Outcome {
  int code = 0;
  std::string error, last, kept;
};

Outcome run_job(const std::string& fault, const std::function<void()>& meanwhile = {}) {
  const std::string folder = ::testing::TempDir() + "/" + fault, error = folder + "/error";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const pid_t pid = fork();
  if (pid == 0) {
    unsetenv(flight::kFolderVariable);
    if (meanwhile) setenv(flight::kFolderVariable, (folder + "/flight").c_str(), 1);
    dup2(open(error.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
    _exit(launch({.processes = 2, .command = {self, "--rank", fault}, .name = "job", .keep = folder}).code);
  }
  if (meanwhile) meanwhile();
  int status = 0;
  waitpid(pid, &status, 0);
  Outcome o{WIFEXITED(status) ? WEXITSTATUS(status) : -1, content(error), "", ""};
  if (o.error.size() > 1) o.last = o.error.substr(o.error.rfind('\n', o.error.size() - 2) + 1);
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.is_directory()) o.kept = entry.path();
  return o;
}

struct JobFault {
  const char* name;
  diagnose::Fault fault;
  const char* line;  // begin of the last line
  const char* also;  // and what it has
};

class Faults : public ::testing::TestWithParam<JobFault> {};

TEST_P(Faults, AreNamed) {
  const JobFault& f = GetParam();
  const Outcome o = run_job(f.name);
  EXPECT_NE(o.code, 0);
  EXPECT_TRUE(o.last.starts_with(str_cat("job: ", f.line, ": rank 1 (host "))) << o.error;
  EXPECT_NE(o.last.find(f.also), std::string::npos) << o.error;
  ASSERT_NE(o.kept, "") << o.error;
  const diagnose::Diagnosis d = diagnose::diagnose(diagnose::read_job(o.kept));
  EXPECT_EQ(d.fault, f.fault) << d.to_string();
  EXPECT_EQ(d.rank, 1) << d.to_string();
  std::printf("%s: %s", f.name, o.last.c_str());
}

using diagnose::Fault;
constexpr const char* kLine = "distributed/testing/diagnose_test.cc:";
INSTANTIATE_TEST_SUITE_P(Of, Faults,
                         ::testing::Values(JobFault{"drop", Fault::kNeverEntered, "never entered", kLine},
                                           JobFault{"extra", Fault::kExtra, "extra", kLine},
                                           JobFault{"resize", Fault::kMismatched, "mismatched (size)", kLine},
                                           JobFault{"retype", Fault::kMismatched, "mismatched (dtype)", kLine},
                                           JobFault{"loader", Fault::kBusy, "busy on the host (loader)", kLine},
                                           JobFault{"checkpoint", Fault::kBusy, "busy on the host (checkpoint)", kLine},
                                           JobFault{"delay", Fault::kSlow, "slow", kLine},
                                           JobFault{"kill", Fault::kDead, "dead", "died"},
                                           JobFault{"exit", Fault::kDead, "dead", "exited with code 3"},
                                           JobFault{"throw", Fault::kFailed, "failed", "no more data"},
                                           JobFault{"stop", Fault::kStopped, "stopped", "stopped by a signal"}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Diagnose, AllRanksKilledAtOnce) {
  const std::string folder = ::testing::TempDir() + "/killed together/flight";
  const Outcome o = run_job("killed together", [&] {
    std::vector<pid_t> pids;
    while (pids.size() < 2) {
      pids.clear();
      for (int r = 0; r < 2; ++r) {
        const std::string text = content(str_cat(folder, "/pid.", r));
        if (text.ends_with('\n')) pids.push_back(std::atoi(text.c_str()));
      }
      std::this_thread::sleep_for(milliseconds(10));
    }
    // Rank 0 waits for rank 1.
    std::this_thread::sleep_for(milliseconds(1200));
    const diagnose::Diagnosis d = diagnose::diagnose(diagnose::read_job(folder));
    EXPECT_EQ(d.fault, Fault::kBusy) << d.to_string();
    EXPECT_EQ(d.rank, 1) << d.to_string();
    for (pid_t pid : pids) kill(pid, SIGKILL);
  });
  EXPECT_EQ(o.code, 137);
  const diagnose::Diagnosis d = diagnose::diagnose(diagnose::read_job(folder));
  EXPECT_EQ(d.fault, Fault::kBusy) << d.to_string();
  EXPECT_EQ(d.detail, "evaluation");
  EXPECT_EQ(d.rank, 1);
}

TEST(Diagnose, NothingIsWrong) {
  const Outcome o = run_job("nothing");
  EXPECT_EQ(o.code, 0) << o.error;
  EXPECT_EQ(o.error, "");
  EXPECT_EQ(o.kept, "");
}

}  // namespace

int run_as_rank(const std::string& fault) {
  try {
    run_rank(fault);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}

void set_program(const char* path) { self = path; }

}  // namespace weft::dist

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "--rank") return weft::dist::run_as_rank(argv[2]);
  weft::dist::set_program(argv[0]);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
