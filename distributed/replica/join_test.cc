// A replica joins a view of live replicas: it heals, and takes part in the next step with the bits of the others. The
// shards of the others stay in their place.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <thread>

#include "distributed/launch/compile.h"
#include "distributed/launch/testing/gpt_training.h"
#include "distributed/launch/testing/replica_group.h"
#include "distributed/replica/state_parts.h"
#include "framework/base/switches.h"

namespace weft::dist {
namespace {

using weft::testing::GptTraining;
using weft::testing::ReplicaGroup;
using weft::testing::TestReplica;

// A replica with its own model, and its step for each number of live replicas.
struct Member {
  using Fn = std::function<std::vector<Tensor>(Tensor, Tensor)>;

  Member() : training(weft::testing::small_gpt()) {}
  Compiled<Fn>& step(int replicas) {
    const auto at = steps.find(replicas);
    if (at != steps.end()) return at->second;
    const Mesh mesh = Mesh::parse(str_cat("replica", replicas, ",fsdp2"));
    return steps
        .emplace(replicas, dist::compile(Fn([this](Tensor x, Tensor y) { return training(x, y); }), {.mesh = mesh}))
        .first->second;
  }
  static Tensor batch(int replicas, int64_t number) {
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < replicas * 2 * 16; ++i) ids.push_back(static_cast<int32_t>((i * 7919 + number * 31) % 48));
    return Tensor::from_vector<int32_t>(ids, {replicas * 2, 16});
  }
  double train(int replicas, int64_t number) {
    const Tensor x = batch(replicas, number);
    return step(replicas)(x, x)[0].item<double>();
  }
  int64_t scatters() const {
    int64_t n = 0;
    for (const auto& [name, handle] : training.named_cells())
      if (auto* const s = dynamic_cast<ShardedCell*>(handle.cell().remote.get())) n += s->moved.scatters;
    return n;
  }

  TestReplica live;
  GptTraining training;
  std::map<int, Compiled<Fn>> steps;
};

TEST(Join, AJoinerMakesTheNextStepWithTheOthers) {
  set_switch("WEFT_CXX", "none");  // interpreted: faster for so little data
  std::vector<std::unique_ptr<Member>> members;
  for (const uint64_t seed : {1, 1, 2}) {
    manual_seed(seed);
    members.push_back(std::make_unique<Member>());
  }
  const auto two = std::make_shared<ReplicaGroup>(2, 2), three = std::make_shared<ReplicaGroup>(3, 2);
  std::vector<std::vector<double>> losses(3);
  std::vector<std::thread> threads;
  for (int p = 0; p < 3; ++p)
    threads.emplace_back([&, p] {
      Member& m = *members[p];
      const ScopedReplicas scope(m.live);
      const bool joins = p == 2;
      if (!joins) {
        m.live.enter(two, p);
        for (int i = 0; i < 2; ++i) m.train(2, i);
      }
      const int64_t scatters = m.scatters();
      m.live.enter(three, p);
      m.step(3).prepare(Member::batch(3, 0), Member::batch(3, 0));
      const HealedCells healed = heal_cells(
          m.step(3).world(), m.training.named_cells(), shards_of(m.step(3), !joins),
          [&](int rank) { return m.live.communicator(rank); }, {false, false, true}, p, joins ? "" : "step 2",
          std::chrono::steady_clock::now() + std::chrono::minutes(1));
      EXPECT_EQ(healed.record, joins ? "step 2" : "");
      if (joins) healed.adopt();
      for (int i = 2; i < 4; ++i) losses[p].push_back(m.train(3, i));
      EXPECT_EQ(m.scatters(), scatters);
    });
  for (std::thread& t : threads) t.join();
  for (int p = 1; p < 3; ++p) {
    EXPECT_EQ(losses[p], losses[0]);
    const auto a = members[0]->training.named_cells(), b = members[p]->training.named_cells();
    for (size_t i = 0; i < a.size(); ++i) {
      const Tensor x = a[i].second.value().contiguous(), y = b[i].second.value().contiguous();
      EXPECT_EQ(std::memcmp(x.view_for_kernel().data, y.view_for_kernel().data, static_cast<size_t>(x.type().nbytes())),
                0)
          << p << " " << a[i].first;
    }
  }
}

}  // namespace
}  // namespace weft::dist
