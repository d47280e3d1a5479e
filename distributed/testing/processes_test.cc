// Cases of the equality matrix as processes, over shared memory and over Gloo, and as threads of one process. Bits and
// saved files are equal, and each rank starts the collectives of its plan. The test starts itself:
//     processes_test threads|shared|gloo RANKS OUT
// runs the cases and writes their bits to OUT + "threads", or to OUT + transport + rank. On several hosts a process
// for each rank is started by hand, with RANK, JOB_STORE and, for the network to use, JOB_ADDRESS or JOB_INTERFACE.
#include "distributed/launch/processes.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>

#include "distributed/diagnose/deviation.h"
#include "distributed/launch/launcher.h"
#include "distributed/testing/child.h"
#include "distributed/testing/matrix_model.h"
#include "framework/base/hash.h"
#include "framework/io/file.h"

namespace weft::testing {
namespace {

std::string self;

std::vector<MatrixCase> cases(int ranks, const std::string& folder = {}) {
  std::vector<MatrixCase> all;
  const auto add = [&](const char* mesh, dist::Plan plan = {}, double capacity = 0) {
    all.push_back(
        {.mesh = mesh, .plan = std::move(plan), .capacity = capacity, .dtype = kFloat32, .steps = 2, .folder = folder});
  };
  const auto with = [](int zero, const char* cp, const char* layout, const char* schedule = "1f1b") {
    dist::Plan p;
    p.zero = zero;
    p.cp = cp;
    p.cp_layout = layout;
    p.pipeline = schedule;
    return p;
  };
  dist::Plan narrow = with(1, "allgather", "auto");
  narrow.wire = "bf16";
  if (ranks == 2) {
    add("dp2", narrow);
    add("dp2");
    add("dp2", with(1, "allgather", "auto"));
    add("dp2", with(3, "allgather", "auto"));
    add("tp2");
    add("cp2", with(0, "ring", "headtail"));
    add("cp2", with(0, "ulysses", "contiguous"));
    add("cp2", with(0, "allgather", "documents"));
    add("ep2");
    add("ep2", {}, 1.25);
    add("pp2", with(0, "allgather", "auto", "zb_h1"));
    return all;
  }
  add("dp2,tp2", narrow);
  add("dp2,tp2", with(1, "allgather", "auto"));
  add("dp2,cp2", with(2, "ring", "contiguous"));
  add("dp2,ep2", with(3, "allgather", "auto"));
  add("cp2,tp2");
  add("ep2,tp2", {}, 1.25);
  add("ep4");
  add("dp4", with(3, "allgather", "auto"));
  add("pp2,dp2", with(1, "allgather", "auto"));
  add("pp2,tp2", with(0, "allgather", "auto", "interleaved_1f1b"));
  add("pp2,ep2");
  return all;
}

// The findings of a process: bits of all values, and whether its last rank started the planned collectives.
std::string text_of(const MatrixCase& c) {
  const MatrixRun r = run_case(c);
  std::ostringstream text;
  text << c.name() << "\n";
  const auto add = [&](const std::string& name, const std::vector<double>& values) {
    uint64_t hash = 0xcbf29ce484222325;
    for (double v : values) hash = (hash ^ std::bit_cast<uint64_t>(v)) * 0x100000001b3;
    text << "  " << name << " " << values.size() << " " << std::hex << hash << std::dec << "\n";
  };
  add("losses", r.losses);
  add("norms", r.norms);
  for (const auto& [name, values] : r.cells) add(name, values);
  for (const std::string& file : r.saved)
    text << "  file " << file.size() << " " << std::hex << hash_text(file) << "\n";
  if (r.save_bytes > 0) text << "  other memory than of the shards: " << r.save_bytes << "\n";
  if (r.saved != r.whole) text << "  other files than of one writer\n";
  if (r.planned != r.actual) text << "  other collectives than planned\n";
  return text.str();
}

void run_cases(int ranks, const std::string& out) {
  std::ofstream file(out);
  const std::string folder = out.substr(0, out.rfind('.')) + ".saved";
  io::make_folders(folder);
  for (const MatrixCase& c : cases(ranks, folder)) file << text_of(c) << std::flush;
}

class Ranks : public ::testing::TestWithParam<int> {};

TEST_P(Ranks, ProcessesHaveTheBitsOfThreads) {
  const int n = GetParam();
  const char* const folder = std::getenv("TEST_TMPDIR");
  const std::string out = str_cat(folder ? folder : "/tmp", "/ranks", n, ".");
  const auto start = [&](int processes, const std::string& kind) {
    return dist::launch({.processes = processes, .command = {self, kind, std::to_string(n), out}, .name = "test"}).code;
  };
  ASSERT_EQ(start(1, "threads"), 0);
  const std::string want = content(out + "threads");
  EXPECT_EQ(want.find("  other "), want.npos) << want;
  EXPECT_NE(want.find("  file "), want.npos) << want;
  EXPECT_GT(want.size(), 10000u);
  for (const std::string transport : {"shared", "gloo"}) {
    const std::string flight = str_cat(out, transport, ".flight");
    setenv(flight::kFolderVariable, flight.c_str(), 1);
    ASSERT_EQ(start(n, transport), 0);
    unsetenv(flight::kFolderVariable);
    // The flight records, as far as they reach back, agree with the plans.
    const dist::diagnose::TracedJob job = dist::diagnose::read_job(flight);
    EXPECT_EQ(job.plans.size() % static_cast<size_t>(n), 0u);
    EXPECT_GE(job.plans.size(), cases(n).size() * static_cast<size_t>(n));
    for (const dist::diagnose::RankTrace& t : job.ranks) {
      EXPECT_GT(t.records.size(), 1000u);
      const auto d = dist::diagnose::deviation_of(job, t, std::numeric_limits<int64_t>::max());
      EXPECT_FALSE(d) << "rank " << t.rank << ", step " << d->started.plan << ", site " << d->started.site
                      << ", position " << d->started.position;
    }
    for (int r = 0; r < n; ++r) EXPECT_EQ(content(str_cat(out, transport, r)), want) << transport << ", rank " << r;
  }
}
INSTANTIATE_TEST_SUITE_P(Of, Ranks, ::testing::Values(2, 4));

}  // namespace

int child(const std::string& kind, int ranks, const std::string& out) {
  if (kind == "threads") {
    run_cases(ranks, out + "threads");
    return 0;
  }
  const int rank = std::atoi(std::getenv("RANK"));
  dist::FolderStore store(std::getenv("JOB_STORE"));
  dist::Processes::set_current(
      std::make_unique<dist::Processes>(store, ranks, rank, 1, std::chrono::seconds(60), kind));
  run_cases(ranks, str_cat(out, kind, rank));
  dist::Processes::current()->barrier();
  dist::Processes::set_current({});
  return 0;
}

}  // namespace weft::testing

int main(int argc, char** argv) {
  if (argc == 4) try {
      return weft::testing::child(argv[1], std::atoi(argv[2]), argv[3]);
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%s\n", e.what());
      return 1;
    }
  weft::testing::self = argv[0];
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
