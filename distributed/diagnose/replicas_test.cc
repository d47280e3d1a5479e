// Three simulated replicas of two ranks: the diagnosis names the replica for which the others wait.
#include "distributed/diagnose/replicas.h"

#include <gtest/gtest.h>

#include <random>

#include "distributed/diagnose/testing/simulated_job.h"
#include "framework/io/json.h"

namespace weft::dist::diagnose {
namespace {

using flight::Phase;

constexpr int kReplicas = 3, kRanks = 2, kRuns = 3;
constexpr int64_t kMs = 1'000'000, kSecond = 1'000'000'000;

using Jobs = std::vector<std::pair<std::string, TracedJob>>;
using Scripts = std::vector<std::vector<Action>>;

// A step: sums inside a replica and over replicas, and the vote, in which the leaders meet.
std::vector<PlannedRow> rows() {
  std::vector<PlannedRow> all;
  for (const char* axes : {"tp", "replica", "tp", "replica", "world"}) {
    PlannedRow r{.kind = Collective::kAllReduce, .axes = axes, .bytes = 4096, .site = all.size() + 1};
    if (r.axes == "world") r.kind = Collective::kBarrier, r.bytes = 0, r.phase = "commit";
    r.what = str_cat("blocks.", all.size(), ".weight"), r.line = str_cat("model.cc:", 10 + all.size());
    all.push_back(r);
  }
  return all;
}

Scripts scripts() {
  Scripts all(kReplicas * kRanks);
  for (auto& a : all)
    for (int k = 0; k < kRuns; ++k) {
      a.push_back({.kind = Action::kBegin, .plan = 1, .phase = Phase::kStep});
      for (const PlannedRow& row : rows()) {
        a.push_back({.kind = Action::kCompute, .ns = kMs});
        a.push_back({.kind = Action::kStart, .row = row, .plan = 1});
        a.push_back({.kind = Action::kWait, .row = row, .plan = 1});
      }
      a.push_back({.kind = Action::kEnd, .plan = 1, .phase = Phase::kStep});
    }
  return all;
}

// The records of each replica of one simulated mesh, as of jobs of their own.
Jobs jobs_of(const Scripts& scripts, const SimulationOptions& options = {.mesh = "replica3,tp2", .look = 4 * kSecond}) {
  const PlannedStep plan{.number = 1, .mesh = "tp2", .hash = 9, .programs = {rows()}, .program_of = {{0, 0}, {1, 0}}};
  const TracedJob all = simulate(scripts, plan, options);
  Jobs jobs;
  for (int p = 0; p < kReplicas; ++p) {
    TracedJob job{.size = kRanks, .now = all.now};
    for (int r = 0; r < kRanks; ++r) {
      RankTrace t = all.ranks[static_cast<size_t>(p * kRanks + r)];
      t.rank = r, t.size = kRanks, t.mesh = "tp2";
      t.view = {.replica = std::string(1, static_cast<char>('a' + p)),
                .view = 4,
                .place = static_cast<uint32_t>(p),
                .members = kReplicas};
      for (size_t c = 0; c < t.communicators.size(); ++c)
        if (t.communicators[c] == "replica") t.sums = t.started[c];
      job.ranks.push_back(std::move(t));
      job.plans[{1, r}] = std::make_shared<const PlannedStep>(plan);
    }
    jobs.emplace_back(str_cat("folder", p), std::move(job));
  }
  return jobs;
}

TEST(Replicas, NamesTheOneThatStands) {
  std::mt19937_64 random(1);
  for (int seed = 0; seed < 300; ++seed) {
    const auto victim = static_cast<size_t>(random() % (kReplicas * kRanks));
    Scripts s = scripts();
    std::vector<Action>& actions = s[victim];
    const auto at = actions.begin() + static_cast<ptrdiff_t>(random() % (actions.size() * (kRuns - 1) / kRuns));
    const bool stops = random() % 2;
    if (stops) {
      actions.insert(at, {.kind = Action::kStop});
    } else {
      const Action stands[] = {{.kind = Action::kBegin, .phase = Phase::kLoader},
                               {.kind = Action::kCompute, .ns = 1000 * kSecond}};
      actions.insert(at, std::begin(stands), std::end(stands));
    }
    const ReplicasDiagnosis d = diagnose_replicas(jobs_of(s));
    const auto replica = static_cast<int>(victim / kRanks);
    ASSERT_EQ(d.awaited, replica) << seed << "\n" << d.to_string();
    const std::string name(1, static_cast<char>('a' + replica));
    const std::string others = replica == 0 ? "b and c" : replica == 1 ? "a and c" : "a and b";
    ASSERT_TRUE(d.sentences[0].starts_with(str_cat("replicas ", others, " wait for replica ", name, ": ")))
        << d.sentences[0];
    const std::string rank = str_cat("rank ", victim % kRanks, " (host simulated, pid ", 1000 + victim);
    ASSERT_NE(d.sentences[0].find(rank), std::string::npos) << d.sentences[0];
    ASSERT_NE(d.sentences[0].find(stops ? "stopped" : "loader"), std::string::npos) << d.sentences[0];
    ASSERT_NE(d.sentences[0].find(" of replica "), std::string::npos) << d.sentences[0];
    ASSERT_EQ(d.sentences.size(), 1u);
  }
}

TEST(Replicas, NobodyWaits) {
  for (const int64_t ms : {3, 9, 14, 4000}) {
    const ReplicasDiagnosis d =
        diagnose_replicas(jobs_of(scripts(), {.mesh = "replica3,tp2", .look = kSecond + ms * kMs}));
    EXPECT_EQ(d.awaited, -1) << d.to_string();
    EXPECT_EQ(d.sentences, std::vector<std::string>{"no replica of view 4 waits for another one"});
  }
}

TEST(Replicas, AReplicaThatIsNotInTheViewIsNotAwaited) {
  Jobs jobs = jobs_of(scripts());
  for (RankTrace& t : jobs[1].second.ranks) t.view.view = 3, t.state = ProcessState::kGone, t.ended = false;
  const ReplicasDiagnosis d = diagnose_replicas(jobs);
  EXPECT_EQ(d.awaited, -1);
  ASSERT_EQ(d.sentences.size(), 2u);
  EXPECT_TRUE(d.sentences[1].starts_with("replica b is not in view 4, and its last view is 3: ")) << d.sentences[1];
  EXPECT_NE(d.sentences[1].find("pid 1002"), std::string::npos) << d.sentences[1];
}

TEST(Replicas, RecordsOfAllAreNeeded) {
  Scripts s = scripts();
  s[4].insert(s[4].begin() + 2, {.kind = Action::kStop});
  Jobs jobs = jobs_of(s);
  jobs.pop_back();
  const ReplicasDiagnosis d = diagnose_replicas(jobs);
  EXPECT_EQ(d.awaited, -1);
  EXPECT_EQ(d.sentences,
            std::vector<std::string>{"view 4 has 3 replicas, and records of 2; need the folder of each replica"});
}

TEST(Replicas, Json) {
  Scripts s = scripts();
  s[4].insert(s[4].begin() + 2, {.kind = Action::kStop});
  const ReplicasDiagnosis d = diagnose_replicas(jobs_of(s));
  const io::Json j = io::parse_json(d.to_json(), "the diagnosis");
  EXPECT_EQ(j.at("awaited").get<std::string>(), "c");
  EXPECT_EQ(j.at("replicas").at(2).at("diagnosis").at("fault").get<std::string>(), "stopped");
  EXPECT_EQ(j.at("replicas").at(0).at("view").get<int64_t>(), 4);
}

}  // namespace
}  // namespace weft::dist::diagnose
