// Traces of steps on a mesh: tracks of ranks, and collectives that join all their ranks.
#include "compiler/exec/run/trace.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>

#include "compiler/exec/record/profile.h"
#include "compiler/exec/testing/trace_file.h"
#include "distributed/collectives.h"
#include "distributed/launch/compile.h"
#include "distributed/launch/world.h"
#include "framework/base/testing/error_of.h"
#include "weft.h"

namespace weft::dist {
namespace {

using testing::TraceFile;

// Two layers and their update, with products split over tp and gradients summed over dp.
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

TEST(MeshTrace, EveryCollectiveJoinsItsRanks) {
  const Mesh mesh = Mesh::parse("dp2,tp2");
  auto step = compile(Training(), {.mesh = mesh});
  const Tensor x = ones({8, 16});
  step(x);
  const Profile p = profile([&] { step(x); }, 3);
  std::map<uint64_t, std::map<int, std::pair<int, int>>> flows;  // inner key: rank; starts, waits
  std::map<uint64_t, std::string> axes;
  for (const TraceEvent& e : p.events()) {
    EXPECT_TRUE(e.rank >= 0 || (e.kind != TraceEvent::kLaunch && e.kind != TraceEvent::kCollective));
    if (e.kind != TraceEvent::kCollective) continue;
    ASSERT_NE(e.flow, 0u);
    flows[e.flow][e.rank].first += e.starts;
    flows[e.flow][e.rank].second += e.waits;
    axes[e.flow] = e.scope;
  }
  std::set<std::string> kinds;
  for (const auto& [flow, ranks] : flows) {
    kinds.insert(axes[flow]);
    std::vector<int> all;
    for (const auto& [rank, parts] : ranks) {
      all.push_back(rank);
      EXPECT_EQ(parts, std::pair(1, 1)) << "rank " << rank;
    }
    std::vector<int> group = mesh.group(all[0], axes[flow]);
    std::sort(group.begin(), group.end());
    EXPECT_EQ(all, group) << axes[flow];
  }
  EXPECT_GE(kinds.size(), 2u);  // the barrier of the commit, and collectives of the step

  const RankTimes times = p.times();
  ASSERT_EQ(times.ranks.size(), 4u);
  for (const RankTime& r : times.ranks) {
    EXPECT_EQ(r.compute + r.communication + r.waiting + r.idle, times.total);
    for (int64_t t : {r.compute, r.communication, r.waiting, r.idle}) EXPECT_GE(t, 0);
  }
  EXPECT_NE(p.summary().find(str_cat("critical: rank ", times.critical)), std::string::npos) << p.summary();

  const std::string path = ::testing::TempDir() + "/mesh_trace.json";
  p.save(path);
  const TraceFile file(path);
  file.expect_sound();
  std::map<std::string, int> begins;
  std::map<std::string, std::set<int>> joined;
  for (const char* ph : {"s", "f"})
    for (const io::Json& e : file.of(ph)) {
      begins[e.at("id")] += ph[0] == 's';
      EXPECT_TRUE(joined[e.at("id")].insert(e.at("pid").get<int>() - 2).second) << e;
    }
  ASSERT_EQ(joined.size(), flows.size());
  for (const auto& [flow, ranks] : flows) {
    char id[24];
    std::snprintf(id, sizeof id, "0x%llx", static_cast<unsigned long long>(flow));
    std::set<int> all;
    for (const auto& [rank, parts] : ranks) all.insert(rank);
    EXPECT_EQ(joined[id], all);
    EXPECT_EQ(begins[id], 1);
  }
  std::set<std::string> tracks;
  for (const io::Json& e : file.of("M"))
    if (e.at("name") == "thread_name") tracks.insert(e.at("args").at("name").get<std::string>());
  for (const char* name : {"main", "rank 0", "rank 3"}) EXPECT_TRUE(tracks.contains(name)) << name;
}

// The threads of the ranks have ended when the trace is written.
TEST(MeshTrace, OutlivesItsRanks) {
  const Profile p = profile([] { run(Mesh::parse("dp2"), [](int rank) { all_reduce(full({4}, rank), "dp"); }); }, 2);
  std::map<uint64_t, std::set<int>> flows;
  for (const TraceEvent& e : p.events())
    if (e.kind == TraceEvent::kCollective) flows[e.flow].insert(e.rank);
  EXPECT_EQ(flows.size(), 2u);
  for (const auto& [flow, ranks] : flows) EXPECT_EQ(ranks, (std::set<int>{0, 1}));
}

TEST(MeshTrace, ARankThatThrows) {
  const std::string path = ::testing::TempDir() + "/mesh_failed.json";
  const Profile p = profile(
      [] {
        EXPECT_NE(testing::error_of([] {
                    run(Mesh::parse("dp3"), [](int rank) {
                      if (rank == 1) internal::fail(Code::kInternal, "broken");
                      all_reduce(ones({4}), "dp");
                    });
                  }),
                  "");
      },
      1);
  int failed = 0;
  for (const TraceEvent& e : p.events()) failed += e.kind == TraceEvent::kCollective && e.failed;
  EXPECT_EQ(failed, 2);
  p.save(path);
  TraceFile(path).expect_sound();
}

}  // namespace
}  // namespace weft::dist
