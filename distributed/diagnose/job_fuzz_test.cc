// Damaged flight records and plans: each is refused with an error, or gives a diagnosis.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "distributed/diagnose/diagnosis.h"
#include "framework/testing/fuzz.h"

namespace weft::dist::diagnose {
namespace {

using weft::testing::FuzzRandom;

std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

PlannedStep plan() {
  PlannedStep p{.number = 1, .mesh = "dp2,tp2", .hash = 5};
  p.programs.resize(1);
  for (uint64_t site = 1; site <= 4; ++site)
    p.programs[0].push_back({.kind = site % 2 ? Collective::kAllReduce : Collective::kSend,
                             .axes = site % 2 ? "dp" : "tp",
                             .bytes = 64,
                             .site = site,
                             .phase = "forward",
                             .what = "w",
                             .line = "a.cc:1"});
  for (int r = 0; r < 4; ++r) p.program_of[r] = 0;
  return p;
}

// A ring of the plan's steps; `stuck`: the rank does not end its last collective.
std::string ring(int rank, uint32_t capacity, bool stuck) {
  const std::string path = ::testing::TempDir() + "/fuzz_ring";
  const PlannedStep planned = plan();
  {
    flight::RecordRing r(path, rank, 4, capacity);
    r.set_mesh("dp2,tp2");
    for (uint32_t run = 1; run <= 3; ++run) {
      flight::Record step{.run = run, .plan = 1};
      r.phase(flight::Event::kPhaseBegin, flight::Phase::kStep, 1, run);
      for (const PlannedRow& row : planned.programs[0]) {
        flight::Record c = r.start(r.communicator(row.axes), {.kind = row.kind, .peer = 1 - rank % 2, .site = row.site},
                                   row.bytes, step);
        ++step.position;
        c.event = flight::Event::kWait;
        r.write(c);
        if (stuck && run == 3 && step.position == 3) return content(path);
        c.event = flight::Event::kEnd;
        r.write(c);
      }
      r.phase(flight::Event::kPhaseEnd, flight::Phase::kStep, 1, run, step.position);
    }
    r.fail(Code::kInternal, "an error");
    r.end(1);
  }
  return content(path);
}

TracedJob job_of(std::vector<RankTrace> traces) {
  TracedJob job;
  job.size = 4;
  job.ranks.resize(4);
  for (int r = 0; r < 4; ++r) job.ranks[static_cast<size_t>(r)].rank = r;
  const auto p = std::make_shared<const PlannedStep>(plan());
  for (int r = 0; r < 4; ++r) job.plans[{1, r}] = p;
  for (RankTrace& t : traces)
    if (t.rank < 4) job.ranks[static_cast<size_t>(t.rank)] = std::move(t);
  return job;
}

TEST(JobFuzz, DamagedRings) {
  const std::string other = ring(1, 64, true);
  auto read = [&](const std::string& bytes) {
    RankTrace t = parse_ring(bytes, "ring.0");
    for (const flight::Record& r : t.records) EXPECT_LE(static_cast<int>(r.event), 6);
    const Diagnosis d = diagnose(job_of({std::move(t), parse_ring(other, "ring.1")}));
    EXPECT_FALSE(d.sentence.empty());
    EXPECT_EQ(d.sentence.find('\n'), std::string::npos);
    EXPECT_FALSE(d.to_json().empty());
  };
  // Half of the damaged records get a valid check, so that their values are read.
  auto damage = [](std::string& bytes, FuzzRandom& random) {
    weft::testing::damage_bytes(bytes, random);
    if (random() % 2) return;
    for (size_t at = sizeof(flight::Header); at + sizeof(flight::Record) <= bytes.size();
         at += sizeof(flight::Record)) {
      flight::Record r;
      std::memcpy(static_cast<void*>(&r), bytes.data() + at, sizeof r);
      if (random() % 8 == 0) reinterpret_cast<unsigned char*>(&r)[random() % 56] = static_cast<unsigned char>(random());
      if (r.sequence) r.check = flight::check_of(r);
      std::memcpy(bytes.data() + at, &r, sizeof r);
    }
  };
  weft::testing::fuzz({.seeds = {ring(0, 64, false), ring(0, 64, true), ring(2, 8, false)},
                       .damage = damage,
                       .read = read,
                       .names = "ring.0",
                       .inputs = 5000});
}

TEST(JobFuzz, DamagedPlans) {
  const std::vector<std::string_view> words = {"number", "mesh",  "hash",  "ranks",   "programs",  "kind",
                                               "axes",   "dtype", "bytes", "dp2,tp2", "f32",       "-1",
                                               "[]",     "{}",    "1e99",  "null",    "all_reduce"};
  auto read = [&](const std::string& text) {
    const PlannedStep p = parse_planned(text, "plan.1.0.json");
    for (const auto& [rank, program] : p.program_of) EXPECT_LT(static_cast<size_t>(program), p.programs.size()) << rank;
  };
  weft::testing::fuzz({.seeds = {to_json(plan())},
                       .damage = [&](std::string& s, FuzzRandom& r) { weft::testing::damage_text(s, r, words); },
                       .read = read,
                       .names = "plan.1.0.json",
                       .inputs = 5000});
}

TEST(JobFuzz, PlansComeBack) {
  const PlannedStep p = plan(), q = parse_planned(to_json(p), "plan");
  EXPECT_EQ(p.programs, q.programs);
  EXPECT_EQ(p.program_of, q.program_of);
  EXPECT_EQ(p.hash, q.hash);
}

TEST(JobFuzz, AFolderWithDamagedFiles) {
  const std::string folder = ::testing::TempDir() + "/job";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  EXPECT_THROW(read_job(folder), Error);
  std::ofstream(folder + "/ring.0") << ring(0, 64, false);
  std::ofstream(folder + "/ring.1") << "short";
  std::ofstream(folder + "/ring.2") << std::string(1 << 16, 'x');
  std::ofstream(folder + "/ring.3") << ring(1, 64, false);
  std::ofstream(folder + "/ring.9999999999") << "";
  std::ofstream(folder + "/plan.1.0.json") << "{";
  const TracedJob job = read_job(folder);
  EXPECT_EQ(job.size, 4);
  EXPECT_EQ(job.notes.size(), 4u);
  EXPECT_FALSE(diagnose(job).sentence.empty());
}

}  // namespace
}  // namespace weft::dist::diagnose
