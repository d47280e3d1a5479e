// Faults in jobs of real ranks: the diagnosis names each fault and its rank within a time limit, nothing hangs, and no
// process remains. The plain test runs one case of each kind; --seeds N --jobs J runs N seeds, J at a time, and prints
// a table. The test starts itself for each rank.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <sstream>

#include "distributed/diagnose/diagnosis.h"
#include "distributed/launch/launcher.h"
#include "distributed/testing/child.h"
#include "distributed/testing/fault_job.h"
#include "framework/base/clock.h"
#include "framework/base/cpu.h"
#include "framework/dispatch/rank/flight.h"
#include "framework/mesh/mesh.h"

namespace weft::testing {
namespace {

namespace fs = std::filesystem;
using dist::diagnose::TracedJob;

std::string self;
// Seconds until a job has ended because a rank failed before it joined: a stopped one is noticed after 2 s.
constexpr double kMostAtStart = 2.6;

struct Outcome {
  int code = 0;
  std::string error, last;
  double seen = -1;      // seconds from the fault until another rank knew; -1: not measured
  double reported = -1;  // seconds from the fault until the launcher had ended
  int left = 0;          // number of the job's processes that still run
};

// When another rank knew of the fault; for a mismatch, when a rank could know of it.
double seen(const TracedJob& job, const FaultCase& c, int64_t fault) {
  int64_t first = INT64_MAX, came = fault;
  for (const dist::diagnose::RankTrace& t : job.ranks) {
    int64_t start = 0;
    for (const flight::Record& r : t.records) {
      if (r.event == flight::Event::kStart) start = r.time;
      const bool fails = r.event == flight::Event::kFailed || (r.event == flight::Event::kEnd && r.outcome != 0);
      if (!fails || r.time < fault) continue;
      if (r.time < first && (t.rank != c.rank || c.kind <= Kind::kRetype)) first = r.time;
      came = std::max(came, start);
      break;
    }
  }
  if (first == INT64_MAX) return -1;
  return static_cast<double>(first - (c.kind <= Kind::kRetype ? std::min(came, first) : fault)) * 1e-9;
}

// The flight records of a job are in `folder`/flight. `keeps`: the launcher records in a temporary folder, and copies
// it there if the job fails. `meanwhile` is called in this process while the job runs.
Outcome run_case(const FaultCase& c, const std::string& folder, bool keeps,
                 const std::function<void()>& meanwhile = {}) {
  fs::remove_all(folder);
  fs::create_directories(folder);
  const std::string error = folder + "/error", mark = folder + "/mark";
  std::string flight = folder + "/flight";
  const int ranks = dist::Mesh::parse(c.mesh).size();
  const pid_t pid = fork();
  if (pid == 0) {
    if (keeps) {
      unsetenv(flight::kFolderVariable);
    } else {
      setenv(flight::kFolderVariable, flight.c_str(), 1);
    }
    setenv("WEFT_THREADS", "1", 1);
    dup2(open(error.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
    _exit(dist::launch({.processes = c.ranks == "threads" ? 1 : ranks,
                        .command = {self, "--rank", to_string(c), mark},
                        .name = "job",
                        .keep = folder})
              .code);
  }
  if (meanwhile) meanwhile();
  // This wait ends a hang.
  int status = 0;
  bool hangs = true;
  for (int i = 0; i < 12000 && hangs; ++i) {
    hangs = waitpid(pid, &status, WNOHANG) == 0;
    if (hangs) usleep(10'000);
  }
  const int64_t end = internal::now_ns();
  if (hangs) {
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
  }
  Outcome o{.code = hangs ? -99 : WIFEXITED(status) ? WEXITSTATUS(status) : -1, .error = content(error)};
  if (o.error.size() > 1) o.last = o.error.substr(o.error.rfind('\n', o.error.size() - 2) + 1);
  const std::string time = content(mark);
  if (!time.empty()) o.reported = static_cast<double>(end - std::stoll(time)) * 1e-9;
  for (const auto& entry : fs::directory_iterator(folder))
    if (keeps && entry.is_directory()) flight = entry.path();
  if (!fs::exists(flight + "/ring.0")) return o;
  const TracedJob job = dist::diagnose::read_job(flight, false);
  if (!time.empty()) o.seen = seen(job, c, std::stoll(time));
  for (const auto& t : job.ranks) o.left += t.present() && kill(t.pid, 0) == 0;
  return o;
}

// The error in the report of a case; empty: none.
std::string judge(const FaultCase& c, const Outcome& o) {
  const std::string who = str_cat(": rank ", c.rank, " ");
  const auto line = [&](const std::string& kind) { return has(o.last, str_cat("job: ", kind, who)); };
  if (o.code == -99) return "hangs";
  if (o.left) return str_cat(o.left, " processes are left");
  const bool goes_on = c.kind == Kind::kDelay || c.kind == Kind::kLoader || c.kind == Kind::kPause;
  if (goes_on && o.code != 0) return "the job fails";
  const int code = c.kind == Kind::kExit ? 3 : c.kind == Kind::kKill ? 137 : 1;
  if (!goes_on && o.code != code) return str_cat("exit code ", o.code, " instead of ", code);
  const bool outside = c.where == Where::kCheckpoint;
  const bool joins_late = c.where == Where::kStart;  // it may have no records: the launcher alone names it
  if (joins_late && o.reported > kMostAtStart) return str_cat("named after ", o.reported, " s");
  // The records may show, too, that it never joined.
  const bool by_launcher = joins_late && has(o.error, str_cat("job: rank ", c.rank, " (pid ")) &&
                           (has(o.last, str_cat("job: rank ", c.rank, " (pid ")) || line("never entered"));
  switch (c.kind) {
    case Kind::kDrop:
    case Kind::kReorder:
    case Kind::kExtra:
      // Outside of plans, records show only that a collective differs from the others' collective. A reordered
      // collective looks omitted until the rank starts it.
      if (outside && has(o.last, "job: mismatched (") && has(o.last, who)) return "";
      if (c.kind == Kind::kExtra) return line("extra") ? "" : "not named";
      if (line("mismatched (order)")) return "";
      return line("never entered") ? "" : "not named";
    case Kind::kResize:
      if (outside && line("mismatched (size)")) return "";
      return line("mismatched (size)") ? "" : "not named";
    case Kind::kRetype:
      return line("mismatched (dtype)") ? "" : "not named";
    case Kind::kDelay:
    case Kind::kLoader: {
      const std::string phase = c.kind == Kind::kLoader           ? "busy on the host (loader)"
                                : has(o.error, "job waits: slow") ? "slow"
                                : outside                         ? "busy on the host (checkpoint)"
                                                                  : "busy on the host (evaluation)";
      const bool phase_fits = phase != "busy on the host (evaluation)" || c.where == Where::kEvaluation;
      if (!phase_fits || !has(o.error, str_cat("job: the job waits: ", phase, who))) return "not reported as slow";
      if (!has(o.error, str_cat("job: the job goes on: rank ", c.rank, " came after ")))
        return "its end is not reported";
      return std::count(o.error.begin(), o.error.end(), '\n') == 2 ? "" : "not two lines";
    }
    case Kind::kPause:
      return o.error.empty() ? "" : "an alarm";
    case Kind::kExit:
      if (by_launcher && has(o.error, "exited with code 3")) return "";
      return line("dead") && has(o.last, "exited with code 3") ? "" : "not named";
    case Kind::kThrow:
      if (by_launcher && has(o.error, "no more data")) return "";
      return line("failed") && has(o.last, "no more data") ? "" : "not named";
    case Kind::kKill:
      if (by_launcher && has(o.error, "by signal 9")) return "";
      return line("dead") ? "" : "not named";
    case Kind::kStop:
      return line("stopped") ? "" : "not named";
    case Kind::kSeed:
    case Kind::kLr:
    case Kind::kBatch: {
      const std::string flag = c.kind == Kind::kSeed ? "--seed" : c.kind == Kind::kLr ? "--lr" : "--batch_size";
      // If there are two ranks, neither is known to be right.
      const bool named =
          has(o.last, str_cat("rank ", c.rank, " (")) || (c.mesh.ends_with('2') && has(o.last, "rank 1 ("));
      return has(o.last, str_cat(" has ", flag)) && named ? "" : "not named";
    }
    case Kind::kLink:
      // Two ranks lose each other.
      return has(o.last, "job: cut off: rank ") && has(o.last, str_cat("rank ", c.rank, " (host")) ? "" : "not named";
    default:
      return "";
  }
}

// The case of a seed: seeds go through all cases in turn.
FaultCase case_of(uint64_t seed) {
  static const std::vector<FaultCase> all = fault_cases();
  std::mt19937_64 random(seed);
  FaultCase c = all[seed % all.size()];
  const bool data_parallel = c.where == Where::kUpdate && (c.kind == Kind::kResize || c.kind == Kind::kRetype);
  const bool sharded =
      c.where == Where::kForward || c.kind == Kind::kReorder;  // these cases need meshes with such collectives
  c.mesh = data_parallel || (!sharded && random() % 3 == 0) ? "dp" : "fsdp";
  // Without a plan, the majority of ranks decides which rank is wrong.
  const bool by_majority = c.where == Where::kCheckpoint && c.kind <= Kind::kRetype;
  c.mesh += by_majority ? "3" : random() % 8 == 0 ? "4" : "2";
  c.rank = static_cast<int>(random() % static_cast<uint64_t>(dist::Mesh::parse(c.mesh).size()));
  c.step = static_cast<int>(random() % 4);
  c.pick = random();
  return c;
}

std::string text_of(const FaultCase& c) {
  return str_cat(to_string_view(c.kind), " x ", to_string_view(c.where), " x ", c.ranks, " (", c.mesh, ", rank ",
                 c.rank, ", step ", c.step, ")");
}

std::string temporary() {
  const char* const parent = std::getenv("TEST_TMPDIR");
  return str_cat(parent ? parent : "/tmp", "/weft-faults-", getpid());
}

class Faults : public ::testing::TestWithParam<int> {};

TEST_P(Faults, AreNamed) {
  // One case of this kind; each rotation of the list gives another case.
  std::vector<uint64_t> seeds;
  for (uint64_t s = 0; s < fault_cases().size(); ++s)
    if (case_of(s).kind == static_cast<Kind>(GetParam())) seeds.push_back(s);
  const char* const seed = std::getenv("TEST_RANDOM_SEED");
  const FaultCase c = case_of(seeds[static_cast<size_t>((seed ? std::atoi(seed) : 1) * 7 + GetParam()) % seeds.size()]);
  const Outcome o = run_case(c, temporary(), c.pick % 2);
  EXPECT_EQ(judge(c, o), "") << text_of(c) << " [" << to_string(c) << "]:\n" << o.error;
  const bool goes_on = c.kind == Kind::kLoader || c.kind == Kind::kDelay || c.kind == Kind::kPause;
  EXPECT_TRUE(goes_on || o.reported < 30) << o.reported;
  fs::remove_all(temporary());
}

INSTANTIATE_TEST_SUITE_P(Of, Faults, ::testing::Range(1, kNumKinds), [](const auto& info) {
  std::string name(to_string_view(static_cast<Kind>(info.param)));
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
});

// Every fault before the join, on either rank: rank 0 has the coordination service.
TEST(Faults, AreNamedBeforeTheJoin) {
  for (const Kind kind : {Kind::kExit, Kind::kThrow, Kind::kKill, Kind::kStop})
    for (const int rank : {0, 1})
      for (const uint64_t pick : {1, 120}) {
        const FaultCase c{.kind = kind, .where = Where::kStart, .ranks = "shared", .rank = rank, .pick = pick};
        const Outcome o = run_case(c, temporary(), pick % 2);
        EXPECT_EQ(judge(c, o), "") << text_of(c) << " [" << to_string(c) << "]:\n" << o.error;
      }
  fs::remove_all(temporary());
}

TEST(Faults, NoneIsReportedWithoutOne) {
  for (const char* ranks : {"threads", "shared", "gloo"}) {
    const FaultCase c{.ranks = ranks};
    const Outcome o = run_case(c, temporary(), false);
    EXPECT_EQ(o.code, 0) << o.error;
    EXPECT_EQ(o.error, "");
  }
  fs::remove_all(temporary());
}

// Starts both ranks of a job as a person does, without a launcher, which could see their ends. Returns their messages.
std::vector<std::string> run_by_hand(const FaultCase& c, const char* seconds) {
  const std::string folder = temporary();
  fs::remove_all(folder);
  fs::create_directories(folder);
  std::vector<pid_t> pids;
  std::vector<std::string> errors;
  const std::string port = str_cat(20000 + std::random_device()() % 9000);  // processes in sandboxes have equal numbers
  for (int rank = 0; rank < 2; ++rank) {
    pids.push_back(fork());
    if (pids.back() != 0) continue;
    const std::pair<const char*, std::string> variables[] = {
        {"RANK", str_cat(rank)},      {"WORLD_SIZE", "2"},   {"LOCAL_RANK", str_cat(rank)}, {"LOCAL_WORLD_SIZE", "2"},
        {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port}, {"JOIN_SECONDS", seconds},     {"WEFT_THREADS", "1"}};
    for (const auto& [name, value] : variables) setenv(name, value.c_str(), 1);
    unsetenv(flight::kFolderVariable);
    dup2(open(str_cat(folder, "/", rank).c_str(), O_WRONLY | O_CREAT, 0600), STDERR_FILENO);
    execl(self.c_str(), self.c_str(), "--rank", to_string(c).c_str(), (folder + "/mark").c_str(), nullptr);
    _exit(127);
  }
  const int other = 1 - c.rank;
  waitpid(pids[static_cast<size_t>(other)], nullptr, 0);
  kill(pids[static_cast<size_t>(c.rank)], SIGKILL);  // it may be stopped
  waitpid(pids[static_cast<size_t>(c.rank)], nullptr, 0);
  for (int rank = 0; rank < 2; ++rank) errors.push_back(content(str_cat(folder, "/", rank)));
  fs::remove_all(folder);
  return errors;
}

TEST(Faults, OfProcessesStartedByHandAreToldOrNamed) {
  const auto other = [](Kind kind, int rank, const char* seconds) {
    return run_by_hand({.kind = kind, .where = Where::kStart, .ranks = "shared", .rank = rank, .pick = 1},
                       seconds)[static_cast<size_t>(1 - rank)];
  };
  const int64_t begin = internal::now_ns();
  for (const int rank : {0, 1}) {
    const std::string error = other(Kind::kThrow, rank, "60");
    EXPECT_TRUE(has(error, str_cat("rank ", rank, " (host "))) << error;
    EXPECT_TRUE(has(error, ") failed before it joined: no more data")) << error;
  }
  EXPECT_LT(internal::now_ns() - begin, 30'000'000'000);  // far below the time of the join
  std::string error = other(Kind::kStop, 1, "2");
  EXPECT_TRUE(has(error, "rank 1 of 2 (host ")) << error;
  EXPECT_TRUE(has(error, ") has not joined")) << error;
  error = other(Kind::kStop, 0, "2");
  EXPECT_TRUE(has(error, "rank 0 (host ")) << error;
  EXPECT_TRUE(has(error, ", with the coordination service, did not answer at 127.0.0.1:")) << error;
}

// Values that are equal in effect join, others do not.
TEST(Faults, SwitchesAreComparedByTheirEffect) {
  const auto run_with = [](const std::string& zero, const std::string& one) {
    const std::string error = temporary() + ".error";
    const pid_t pid = fork();
    if (pid == 0) {
      dup2(open(error.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
      const std::string job = str_cat(self, " --rank '", to_string({.ranks = "shared"}), "' /dev/null");
      _exit(dist::launch({.processes = 2,
                          .command = {"/bin/sh", "-c",
                                      str_cat("if [ $RANK = 0 ]; then export ", zero, "; else export ", one,
                                              "; fi; exec ", job)},
                          .name = "job"})
                .code);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    const std::string text = content(error);
    fs::remove(error);
    return std::pair(WEXITSTATUS(status), text);
  };
  const std::string best(to_string_view(best_isa()));
  EXPECT_EQ(run_with("WEFT_ISA=auto", "WEFT_ISA=" + best), std::pair(0, std::string()));
  EXPECT_EQ(run_with("WEFT_DISABLE=cse,rearrange", "WEFT_DISABLE=rearrange,cse"), std::pair(0, std::string()));
  for (const auto& [zero, one, name] : std::vector<std::tuple<std::string, std::string, std::string>>{
           {"WEFT_ISA=auto", "WEFT_ISA=baseline",
            "the instruction set (WEFT_ISA) baseline and the others have " + best},
           {"WEFT_DISABLE=cse", "WEFT_DISABLE=cse,rearrange", "WEFT_DISABLE cse,rearrange and the others have cse"}}) {
    if (one.ends_with(best)) continue;
    const auto [code, text] = run_with(zero, one);
    EXPECT_EQ(code, 1) << text;
    EXPECT_TRUE(has(text, " has " + name)) << text;
  }
}

// `launch sh -c "train && train"`.
TEST(Faults, ProcessesRunOneJobAfterTheOther) {
  const std::string one = str_cat(self, " --rank '", to_string({.ranks = "shared"}), "' /dev/null");
  EXPECT_EQ(dist::launch({.processes = 2, .command = {"/bin/sh", "-c", one + " && " + one}, .name = "job"}).code, 0);
}

// Records outlive all ranks, and show their last actions.
TEST(Faults, AreNamedAfterAllRanksAreKilledAtOnce) {
  const FaultCase c{.kind = Kind::kDelay, .where = Where::kEvaluation, .ranks = "shared", .rank = 1};
  const std::string flight = temporary() + "/flight";
  const auto check = [&] {
    const dist::diagnose::Diagnosis d = dist::diagnose::diagnose(dist::diagnose::read_job(flight));
    EXPECT_EQ(d.fault, dist::diagnose::Fault::kBusy) << d.to_string();
    EXPECT_EQ(d.detail, "evaluation") << d.to_string();
    EXPECT_EQ(d.rank, 1) << d.to_string();
  };
  const Outcome o = run_case(c, temporary(), false, [&] {
    while (content(temporary() + "/mark").empty()) usleep(10'000);
    usleep(1'500'000);  // rank 0 waits for rank 1
    check();
    for (const auto& t : dist::diagnose::read_job(flight).ranks) kill(t.pid, SIGKILL);
  });
  EXPECT_EQ(o.code, 137) << o.error;
  check();
  fs::remove_all(temporary());
}

// Runs many seeds; returns whether all are right.
bool run_all(uint64_t first, uint64_t count, uint64_t jobs, const std::string& only) {
  const std::string folder = temporary();
  fs::create_directories(folder);
  std::vector<pid_t> pids;
  for (uint64_t j = 0; j < jobs; ++j) {
    const pid_t pid = fork();
    if (pid > 0) pids.push_back(pid);
    if (pid != 0) continue;
    std::ofstream results(str_cat(folder, "/results.", j));
    for (uint64_t s = first + j; s < first + count; s += jobs) {
      const FaultCase c = case_of(s);
      if (!only.empty() && text_of(c).find(only) == std::string::npos) continue;
      const Outcome o = run_case(c, str_cat(folder, "/job.", j), s % 2);
      const std::string wrong = judge(c, o);
      results << s << " " << o.seen << " " << o.reported << " " << (wrong.empty() ? 1 : 0) << std::endl;
      if (!wrong.empty())
        std::printf("WRONG: seed %lu: %s [%s]: %s:\n%s\n", s, text_of(c).c_str(), to_string(c).c_str(), wrong.c_str(),
                    o.error.c_str());
      std::fflush(stdout);
    }
    _exit(0);
  }
  for (pid_t pid : pids) waitpid(pid, nullptr, 0);
  struct Row {
    int cases = 0, right = 0;
    double seen = -1, reported = -1;
  };
  std::map<std::pair<int, std::string>, Row> rows;
  int all = 0, right = 0;
  for (uint64_t j = 0; j < jobs; ++j) {
    std::ifstream results(str_cat(folder, "/results.", j));
    uint64_t seed = 0;
    double seen_in = 0, reported = 0;
    int good = 0;
    while (results >> seed >> seen_in >> reported >> good) {
      const FaultCase c = case_of(seed);
      Row& r = rows[{static_cast<int>(c.kind), c.ranks}];
      ++r.cases, ++all;
      r.right += good, right += good;
      r.seen = std::max(r.seen, seen_in), r.reported = std::max(r.reported, reported);
    }
  }
  std::printf("%-14s %-8s %6s %6s %10s %10s\n", "fault", "ranks", "cases", "right", "seen s", "ended s");
  for (const auto& [key, r] : rows)
    std::printf("%-14s %-8s %6d %6d %10.3f %10.2f\n", std::string(to_string_view(static_cast<Kind>(key.first))).c_str(),
                key.second.c_str(), r.cases, r.right, r.seen, r.reported);
  std::printf("%d of %d named right\n", right, all);
  fs::remove_all(folder);
  return right == all;
}

}  // namespace

int run(int argc, char** argv) {
  self = argv[0];
  if (argc == 4 && std::string_view(argv[1]) == "--rank") return run_faulty(parse_fault_case(argv[2]), argv[3]);
  std::map<std::string, std::string> flags{{"--seeds", ""}, {"--first", "0"}, {"--jobs", "2"}, {"--only", ""}};
  for (int i = 1; i + 1 < argc; i += 2)
    if (flags.contains(argv[i])) flags[argv[i]] = argv[i + 1];
  if (!flags["--seeds"].empty())
    return run_all(std::stoull(flags["--first"]), std::stoull(flags["--seeds"]), std::stoull(flags["--jobs"]),
                   flags["--only"])
               ? 0
               : 1;
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

}  // namespace weft::testing

int main(int argc, char** argv) { return weft::testing::run(argc, argv); }
