#include "distributed/comm/testing/compare_with_threads.h"
#include "distributed/comm/testing/world_tests.h"

namespace weft::testing {
namespace {

TEST_P(WorldCommunicators, HaveTheBitsOfThreadRanks) {
  uint64_t seed = 1;
  for (const int n : {2, 3, 4}) {
    EXPECT_EQ(run(each(n), [&](Communicator& c, dist::ProcessWorld&) { compare_with_threads(c, seed, 150); }),
              n == 2   ? "0 0"
              : n == 3 ? "0 0 0"
                       : "0 0 0 0");
    seed += 1000;
  }
}

TEST_P(WorldCommunicators, HaveTheBitsOfThreadRanksWithSeveralRanksInAProcess) {
  const auto compare = [&](const Layout& layout, uint64_t seed, int cases) {
    return run(layout, [&](Communicator& c, dist::ProcessWorld&) { compare_with_threads(c, seed, cases); });
  };
  EXPECT_EQ(compare({{0, 2}, {1, 3}}, 5000, 100), "0 0");
  EXPECT_EQ(compare({{0, 1}, {2}}, 6000, 100), "0 0");
  EXPECT_EQ(compare({{0}}, 7000, 0), "0");
}

// Work::all_started() is not before the last rank has started, and not after wait(); all ranks are on this host.
TEST_P(WorldCommunicators, KnowWhenAllHadStarted) {
  EXPECT_EQ(run(each(3),
                [](Communicator& c, dist::ProcessWorld&) {
                  const int rank = c.rank();
                  for (int i = 0; i < 10; ++i) {
                    if (rank == i % c.size()) std::this_thread::sleep_for(std::chrono::milliseconds(3));
                    std::vector<int64_t> own{now()}, all(static_cast<size_t>(c.size()));
                    const auto work = c.start({.kind = Collective::kAllGather, .in = view(own), .out = view(all)});
                    ASSERT_EQ(text(work->wait(in_a_minute())), "");
                    const int64_t known = work->all_started().time_since_epoch().count();
                    EXPECT_LE(known, now());
                    for (int64_t started : all) EXPECT_GE(known, started);
                  }
                }),
            "0 0 0");
}

// The operand has many chunks, and each rank reduces a share.
TEST_P(WorldCommunicators, LargeAllReduce) {
  EXPECT_EQ(run(each(3),
                [](Communicator& c, dist::ProcessWorld&) {
                  const int rank = c.rank();
                  std::vector<float> v(3000001), out(v.size());
                  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i % 1000 * (rank + 1));
                  const bool in_place = rank == 1;
                  auto w = c.start({.kind = Collective::kAllReduce, .in = view(v), .out = view(in_place ? v : out)});
                  EXPECT_EQ(text(w->wait(in_a_minute())), "");
                  const auto& got = in_place ? v : out;
                  for (size_t i = 0; i < v.size(); ++i) ASSERT_EQ(got[i], static_cast<float>(i % 1000 * 6));
                }),
            "0 0 0");
}

TEST_P(WorldCommunicators, SplitAndSeveralCommunicators) {
  const std::string folder = new_folder();
  Processes all(4, [&](int rank) {
    dist::FolderStore store(folder);
    const auto world = GetParam().with({})(store, 4, {rank});
    auto everyone = world->communicators("world", all_of(4))[0];
    auto pair = world->communicators("tp", rank < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3})[0];
    EXPECT_EQ(pair->rank(), rank % 2);
    // The keys reverse the order of ranks.
    auto part = everyone->split(rank == 3 ? -1 : 0, -rank, in_a_minute());
    EXPECT_EQ(static_cast<bool>(part), rank != 3);
    for (int i = 0; i < 20; ++i) {
      std::vector<int64_t> in{rank}, a(1), b(1), d(1);
      auto w1 = pair->start({.kind = Collective::kAllReduce, .in = view(in), .out = view(a)});
      auto w2 = everyone->start({.kind = Collective::kAllReduce, .in = view(in), .out = view(b)});
      if (part) {
        EXPECT_EQ(part->rank(), 2 - rank);
        auto w3 = part->start({.kind = Collective::kAllReduce, .in = view(in), .out = view(d)});
        EXPECT_EQ(text(w3->wait(in_a_minute())), "");
        EXPECT_EQ(d[0], 3);
      }
      EXPECT_EQ(text(w2->wait(in_a_minute())), "");
      EXPECT_EQ(text(w1->wait(in_a_minute())), "");
      EXPECT_EQ(a[0], rank < 2 ? 1 : 5);
      EXPECT_EQ(b[0], 6);
      EXPECT_NE(w1->number(), w2->number());
    }
  });
  EXPECT_EQ(all.wait(), "0 0 0 0");
}

TEST_P(WorldCommunicators, JoinHasADeadline) {
  dist::FolderStore store(new_folder());
  try {
    GetParam().with({.timeout = std::chrono::milliseconds(50)})(store, 2, {0});
    ADD_FAILURE() << "joined without rank 1";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kDeadlineExceeded);
    EXPECT_NE(std::string(e.what()).find("rank_1"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace weft::testing
