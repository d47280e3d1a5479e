// Faults in simulated jobs: the diagnosis names rank, kind and collective of each, for every seed.
#include "distributed/diagnose/diagnosis.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "distributed/diagnose/testing/simulated_job.h"
#include "framework/mesh/mesh.h"

namespace weft::dist::diagnose {
namespace {

using flight::Phase;
using Random = std::mt19937_64;

constexpr int64_t kMs = 1'000'000, kSecond = 1'000'000'000;

int below(Random& random, int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); }

struct Script {
  std::string mesh;
  PlannedStep plan;
  std::vector<PlannedRow> rows;
  std::vector<std::vector<std::vector<Action>>> runs;  // indices: rank and run
  bool asynchronous = false;
};

constexpr int kRuns = 4;

// Steps of random collectives; each rank computes for about a millisecond between them.
Script random_script(Random& random) {
  constexpr const char* kMeshes[] = {"dp2", "dp2,tp2", "dp4", "dp2,tp2,cp2"};
  Script s;
  s.mesh = kMeshes[below(random, 4)];
  s.asynchronous = random() % 2;
  const Mesh mesh = Mesh::parse(s.mesh);
  std::vector<std::string> axes{"world"};
  for (const Mesh::Dim& d : mesh.dims()) axes.push_back(d.name);
  const int n = 3 + below(random, 10);
  for (int i = 0; i < n; ++i) {
    PlannedRow r;
    constexpr Collective kKinds[] = {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter,
                                     Collective::kAllToAll, Collective::kBroadcast};
    r.kind = kKinds[below(random, 5)];
    r.axes = axes[static_cast<size_t>(below(random, static_cast<int>(axes.size())))];
    r.dtype = random() % 2 ? kFloat32 : kBFloat16;
    r.bytes = 64 << below(random, 10);
    r.site = static_cast<uint64_t>(i) + 1;
    r.phase = "forward";
    r.what = str_cat("blocks.", i, ".weight"), r.line = str_cat("model.cc:", 10 + i);
    s.rows.push_back(r);
  }
  s.plan = {.number = 1, .mesh = s.mesh, .hash = 9, .programs = {s.rows}, .program_of = {}};
  for (int r = 0; r < mesh.size(); ++r) s.plan.program_of[r] = 0;
  s.runs.resize(static_cast<size_t>(mesh.size()));
  for (auto& runs : s.runs)
    for (int k = 0; k < kRuns; ++k) {
      std::vector<Action> a;
      a.push_back({.kind = Action::kBegin, .phase = Phase::kLoader});
      a.push_back({.kind = Action::kCompute, .ns = kMs});
      a.push_back({.kind = Action::kEnd, .phase = Phase::kLoader});
      a.push_back({.kind = Action::kBegin, .plan = 1, .phase = Phase::kStep});
      for (const PlannedRow& row : s.rows) {
        a.push_back({.kind = Action::kCompute, .ns = kMs / 2 + below(random, kMs)});
        a.push_back({.kind = Action::kStart, .row = row, .plan = 1});
        if (!s.asynchronous) a.push_back({.kind = Action::kWait, .row = row, .plan = 1});
      }
      for (const PlannedRow& row : s.rows)
        if (s.asynchronous) a.push_back({.kind = Action::kWait, .row = row, .plan = 1});
      a.push_back({.kind = Action::kEnd, .plan = 1, .phase = Phase::kStep});
      runs.push_back(std::move(a));
    }
  return s;
}

Diagnosis diagnosis_of(const Script& s, SimulationOptions options = {}) {
  std::vector<std::vector<Action>> scripts;
  for (const auto& runs : s.runs) {
    scripts.emplace_back();
    for (const auto& run : runs) scripts.back().insert(scripts.back().end(), run.begin(), run.end());
  }
  options.mesh = s.mesh;
  return diagnose(simulate(scripts, s.plan, options));
}

// The victim of a mutation: one run of one rank, and one of its collectives.
struct Victim {
  int rank = 0, run = 0;
  size_t row = 0;
  std::vector<Action>* actions = nullptr;

  std::vector<Action>::iterator find(Action::Kind kind, size_t which) const {
    return std::find_if(actions->begin(), actions->end(),
                        [&](const Action& a) { return a.kind == kind && a.row.site == which + 1; });
  }
  void insert_before_start(const Action& a) const { actions->insert(find(Action::kStart, row), a); }
};

Victim victim_of(Script& s, Random& random, size_t rows_after = 0) {
  Victim v;
  v.rank = below(random, static_cast<int>(s.runs.size()));
  v.run = 1 + below(random, kRuns - 2);
  v.row = static_cast<size_t>(below(random, static_cast<int>(s.rows.size() - rows_after)));
  v.actions = &s.runs[static_cast<size_t>(v.rank)][static_cast<size_t>(v.run)];
  return v;
}

// The expected diagnosis.
struct Want {
  std::vector<std::pair<Fault, std::string>> any_of;
  bool collective = true;
};

using Mutate = std::function<Want(Script&, const Victim&, SimulationOptions&, Random&)>;

// Runs a mutation with many seeds.
void check(const char* name, const Mutate& mutate, int seeds = 1000, size_t rows_after = 0) {
  for (int seed = 0; seed < seeds; ++seed) {
    Random random(static_cast<uint64_t>(seed));
    Script s = random_script(random);
    const Victim v = victim_of(s, random, rows_after);
    SimulationOptions options;
    const Want want = mutate(s, v, options, random);
    const Diagnosis d = diagnosis_of(s, options);
    const auto where = [&] {
      return str_cat(name, ", seed ", seed, ", mesh ", s.mesh, ", asynchronous ", s.asynchronous, ", victim rank ",
                     v.rank, " run ", v.run + 1, " row ", v.row, "\n", d.to_string());
    };
    ASSERT_EQ(d.rank, v.rank) << where();
    ASSERT_TRUE(std::find(want.any_of.begin(), want.any_of.end(), std::pair(d.fault, d.detail)) != want.any_of.end())
        << to_string_view(d.fault) << " " << d.detail << "; " << where();
    ASSERT_NE(d.sentence.find(str_cat("rank ", v.rank)), std::string::npos) << where();
    if (!want.collective) continue;
    ASSERT_EQ(d.tensor, s.rows[v.row].what) << where();
    ASSERT_EQ(d.line, s.rows[v.row].line) << where();
    ASSERT_NE(d.sentence.find(d.line), std::string::npos) << where();
  }
}

void change_row(const Victim& v, const std::function<void(PlannedRow&)>& f) {
  for (Action& a : *v.actions)
    if ((a.kind == Action::kStart || a.kind == Action::kWait) && a.row.site == v.row + 1) f(a.row);
}

// Chooses one of a fault's two ends: other ranks meet the deadline, or a person looks before it.
void either_end(SimulationOptions& o, Random& random, int64_t look) {
  if (random() % 2) {
    o.timeout = kSecond;
  } else {
    o.look = look;
  }
}

TEST(Diagnosis, NothingIsWrong) {
  for (int seed = 0; seed < 300; ++seed) {
    Random random(static_cast<uint64_t>(seed));
    Script s = random_script(random);
    SimulationOptions o;
    if (seed % 3 == 1) o.look = kSecond + below(random, 40) * kMs;
    if (seed % 3 == 2) o.look = kSecond + below(random, 40) * kMs, o.killed = true;
    if (seed % 2) o.capacity = 16;
    const Diagnosis d = diagnosis_of(s, o);
    ASSERT_EQ(d.fault, Fault::kNone) << seed << ": " << d.to_string();
  }
}

TEST(Diagnosis, Drop) {
  check("drop", [](Script&, const Victim& v, SimulationOptions& o, Random& random) {
    std::erase_if(*v.actions, [&](const Action& a) {
      return (a.kind == Action::kStart || a.kind == Action::kWait) && a.row.site == v.row + 1;
    });
    either_end(o, random, 3 * kSecond);
    return Want{{{Fault::kNeverEntered, ""}}};
  });
}

TEST(Diagnosis, Extra) {
  check("extra", [](Script& s, const Victim& v, SimulationOptions& o, Random& random) {
    PlannedRow extra = s.rows[static_cast<size_t>(below(random, static_cast<int>(s.rows.size())))];
    extra.site = random() % 2 ? 0 : 777;
    v.insert_before_start({.kind = Action::kStart, .row = extra, .plan = 1});
    v.insert_before_start({.kind = Action::kWait, .row = extra, .plan = 1});
    either_end(o, random, 3 * kSecond);
    return Want{{{Fault::kExtra, ""}}, false};
  });
}

TEST(Diagnosis, Repeated) {
  check("repeat", [](Script&, const Victim& v, SimulationOptions& o, Random& random) {
    const Action start = *v.find(Action::kStart, v.row), wait{.kind = Action::kWait, .row = start.row, .plan = 1};
    v.actions->insert(v.find(Action::kStart, v.row), {start, wait});
    either_end(o, random, 3 * kSecond);
    return Want{{{Fault::kExtra, ""}}, false};
  });
}

// If the rank fails in the first of the two, its next collective is not known.
TEST(Diagnosis, Reorder) {
  check(
      "reorder",
      [](Script& s, const Victim& v, SimulationOptions& o, Random& random) {
        for (Action& a : *v.actions)
          if (a.kind == Action::kStart || (a.kind == Action::kWait && !s.asynchronous)) {
            if (a.row.site == v.row + 1) {
              a.row = s.rows[v.row + 1];
            } else if (a.row.site == v.row + 2) {
              a.row = s.rows[v.row];
            }
          }
        either_end(o, random, 3 * kSecond);
        Want want{{{Fault::kMismatched, "order"}}};
        if (!s.asynchronous) want.any_of.emplace_back(Fault::kNeverEntered, "");
        return want;
      },
      1000, 1);
}

TEST(Diagnosis, ReorderOfEqualOnes) {
  check(
      "reorder of equal ones",
      [](Script& s, const Victim& v, SimulationOptions& o, Random& random) {
        // The transport does not detect the fault: the ranks mix up two tensors and continue.
        for (auto& runs : s.runs)
          for (auto& run : runs)
            for (Action& a : run)
              if (a.row.site == v.row + 2) {
                a.row = s.rows[v.row];
                a.row.site = v.row + 2;
              }
        s.rows[v.row + 1] = s.rows[v.row];
        s.rows[v.row + 1].site = v.row + 2;
        s.plan.programs = {s.rows};
        for (Action& a : *v.actions)
          if (a.row.site == v.row + 1 || a.row.site == v.row + 2) a.row.site = 2 * v.row + 3 - a.row.site;
        static_cast<void>(o), static_cast<void>(random);
        return Want{{{Fault::kMismatched, "order"}}};
      },
      500, 1);
}

TEST(Diagnosis, Resize) {
  check("resize", [](Script&, const Victim& v, SimulationOptions& o, Random& random) {
    change_row(v, [](PlannedRow& r) { r.bytes *= 2; });
    either_end(o, random, 3 * kSecond);
    return Want{{{Fault::kMismatched, "size"}}};
  });
}

TEST(Diagnosis, Retype) {
  check("retype", [](Script&, const Victim& v, SimulationOptions& o, Random& random) {
    change_row(v, [](PlannedRow& r) { r.dtype = kFloat64; });
    either_end(o, random, 3 * kSecond);
    return Want{{{Fault::kMismatched, "dtype"}}};
  });
}

TEST(Diagnosis, OtherKind) {
  check("other kind", [](Script&, const Victim& v, SimulationOptions& o, Random& random) {
    change_row(v, [](PlannedRow& r) { r.kind = Collective::kPermute; });
    either_end(o, random, 3 * kSecond);
    return Want{{{Fault::kMismatched, "kind"}}};
  });
}

TEST(Diagnosis, DelayAndTheJobGoesOn) {
  check("delay", [](Script&, const Victim& v, SimulationOptions&, Random&) {
    v.insert_before_start({.kind = Action::kCompute, .ns = 3 * kSecond});
    return Want{{{Fault::kSlow, ""}}, false};
  });
}

TEST(Diagnosis, DelayWhileOthersWait) {
  check("delay now", [](Script&, const Victim& v, SimulationOptions& o, Random&) {
    v.insert_before_start({.kind = Action::kCompute, .ns = 30 * kSecond});
    o.look = 4 * kSecond;
    return Want{{{Fault::kSlow, ""}}, false};
  });
}

TEST(Diagnosis, DelayBeyondTheDeadline) {
  check("delay beyond the deadline", [](Script&, const Victim& v, SimulationOptions& o, Random&) {
    v.insert_before_start({.kind = Action::kCompute, .ns = 3 * kSecond});
    o.timeout = kSecond;
    return Want{{{Fault::kSlow, ""}}, false};
  });
}

TEST(Diagnosis, HangsAndAllAreKilled) {
  check("hang", [](Script&, const Victim& v, SimulationOptions& o, Random&) {
    v.insert_before_start({.kind = Action::kCompute, .ns = 300 * kSecond});
    o.look = 9 * kSecond;
    o.killed = true;
    return Want{{{Fault::kNeverEntered, ""}}, false};
  });
}

TEST(Diagnosis, Dead) {
  check("dead", [](Script&, const Victim& v, SimulationOptions& o, Random& random) {
    v.insert_before_start({.kind = Action::kDie});
    if (random() % 4 == 0) o.look = 5 * kSecond, o.killed = true;
    return Want{{{Fault::kDead, ""}}, false};
  });
}

TEST(Diagnosis, Exits) {
  check("exit", [](Script&, const Victim& v, SimulationOptions&, Random&) {
    v.insert_before_start({.kind = Action::kExit});
    return Want{{{Fault::kDead, ""}}, false};
  });
}

TEST(Diagnosis, Throws) {
  check("throw", [](Script&, const Victim& v, SimulationOptions&, Random&) {
    v.insert_before_start({.kind = Action::kThrow});
    return Want{{{Fault::kFailed, ""}}, false};
  });
}

TEST(Diagnosis, Stopped) {
  check("stopped", [](Script&, const Victim& v, SimulationOptions& o, Random& random) {
    v.insert_before_start({.kind = Action::kStop});
    either_end(o, random, 4 * kSecond);
    return Want{{{Fault::kStopped, ""}}, false};
  });
}

TEST(Diagnosis, Phases) {
  for (const Phase phase : {Phase::kLoader, Phase::kEvaluation, Phase::kCheckpoint, Phase::kPlan}) {
    int kind = 0;
    check(
        "phase",
        [&](Script&, const Victim& v, SimulationOptions& o, Random&) {
          std::vector<Action> stall;
          stall.push_back({.kind = Action::kBegin, .phase = phase});
          stall.push_back({.kind = Action::kCompute, .ns = 3 * kSecond});
          stall.push_back({.kind = Action::kEnd, .phase = phase});
          v.actions->insert(v.actions->begin(), stall.begin(), stall.end());
          switch (kind++ % 4) {
            case 0:
              o.timeout = kSecond;
              break;
            case 1:
              o.look = 3 * kSecond + kSecond / 2;
              break;
            case 2:
              o.look = 3 * kSecond + kSecond / 2, o.killed = true;
              break;
            default:  // the job continues
              break;
          }
          return Want{{{Fault::kBusy, std::string(flight::to_string_view(phase))}}, false};
        },
        200);
  }
}

TEST(Diagnosis, RingsThatHaveWrapped) {
  check("wrapped", [](Script&, const Victim& v, SimulationOptions& o, Random& random) {
    v.insert_before_start({.kind = Action::kCompute, .ns = 300 * kSecond});
    o.look = 9 * kSecond;
    o.capacity = static_cast<uint32_t>(4 + below(random, 30));
    return Want{{{Fault::kSlow, ""}}, false};
  });
}

TracedJob simple_job() {
  Random random(5);
  Script s = random_script(random);
  std::vector<std::vector<Action>> scripts;
  for (const auto& runs : s.runs) scripts.push_back(runs[0]);
  return simulate(scripts, s.plan, {.mesh = s.mesh});
}

TEST(Diagnosis, AnotherPlan) {
  TracedJob job = simple_job();
  PlannedStep other = *job.plans.begin()->second;
  other.hash = 1;
  job.plans[{1, 1}] = std::make_shared<const PlannedStep>(other);
  const Diagnosis d = diagnose(job);
  EXPECT_EQ(d.fault, Fault::kMismatched);
  EXPECT_EQ(d.detail, "plan");
  EXPECT_EQ(d.rank, 1);
}

TEST(Diagnosis, ARankWithoutRecord) {
  TracedJob job = simple_job();
  const int size = job.size;
  job.ranks.back() = {};
  job.ranks.back().rank = size - 1;
  const Diagnosis d = diagnose(job);
  EXPECT_EQ(d.fault, Fault::kNeverEntered) << d.to_string();
  EXPECT_EQ(d.rank, size - 1);
  EXPECT_NE(d.sentence.find("no flight record"), std::string::npos);
}

TEST(Diagnosis, JsonHasTheSameFields) {
  Random random(3);
  Script s = random_script(random);
  const Victim v = victim_of(s, random);
  change_row(v, [](PlannedRow& r) { r.dtype = kFloat64; });
  const std::string json = diagnosis_of(s, {.timeout = kSecond}).to_json();
  for (const char* part :
       {R"("fault": "mismatched")", R"("detail": "dtype")", R"("tensor": "blocks.)", R"("line": "model.cc:)"})
    EXPECT_NE(json.find(part), std::string::npos) << json;
}

}  // namespace
}  // namespace weft::dist::diagnose
