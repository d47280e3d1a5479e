#include "distributed/comm/gloo/world.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>

#include "distributed/comm/testing/compare_with_threads.h"
#include "distributed/comm/testing/mismatches.h"
#include "distributed/comm/threads.h"
#include "framework/base/testing/error_of.h"

namespace weft::dist {
namespace {

using namespace weft::testing;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

Work::Deadline in(int ms) { return Clock::now() + milliseconds(ms); }

std::unique_ptr<ProcessWorld> make(Store& store, int size, std::vector<int> local) {
  return std::make_unique<GlooWorld>(store, size, std::move(local));
}
std::string run(const Layout& layout, const AnyBody& body) { return run_any_world(make, layout, body); }

TEST(GlooWorld, BitsOfThreadRanks) {
  uint64_t seed = 1;
  for (const int n : {2, 3, 4}) {
    EXPECT_EQ(run(each(n), [&](Communicator& c, int) { compare_with_threads(c, seed, 120); }), n == 2   ? "0 0"
                                                                                               : n == 3 ? "0 0 0"
                                                                                                        : "0 0 0 0");
    seed += 1000;
  }
}

TEST(GlooWorld, BitsOfThreadRanksWithSeveralRanksInAProcess) {
  EXPECT_EQ(run({{0, 2}, {1, 3}}, [](Communicator& c, int) { compare_with_threads(c, 5000, 80); }), "0 0");
  EXPECT_EQ(run({{0, 1}, {2}}, [](Communicator& c, int) { compare_with_threads(c, 6000, 80); }), "0 0");
  EXPECT_EQ(run({{0}}, [](Communicator& c, int) { compare_with_threads(c, 7000, 0); }), "0");
}

TEST(GlooWorld, KnowsWhenAllHadStarted) { EXPECT_EQ(run(each(3), check_all_started), "0 0 0"); }

// Many chunks, and a share for each rank.
TEST(GlooWorld, LargeAllReduce) {
  EXPECT_EQ(run(each(3),
                [](Communicator& c, int rank) {
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

TEST(GlooWorld, SplitAndSeveralCommunicators) {
  const std::string folder = new_folder();
  Processes all(4, [&](int rank) {
    FolderStore store(folder);
    GlooWorld world(store, 4, {rank});
    auto everyone = world.communicators("world", all_of(4))[0];
    auto pair = world.communicators("tp", rank < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3})[0];
    EXPECT_EQ(pair->rank(), rank % 2);
    // Ordered by key: descending.
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

// A collective that has started ends although its ranks compute.
TEST(GlooWorld, ProgressWhileRanksCompute) {
  EXPECT_EQ(run(each(2),
                [](Communicator& c, int) {
                  std::vector<float> v(1 << 20, 1.0f);
                  auto w = c.start({.kind = Collective::kAllReduce, .in = view(v), .out = view(v)});
                  // No call of wait().
                  const auto end = Clock::now() + std::chrono::seconds(10);
                  while (!w->done() && Clock::now() < end) std::this_thread::sleep_for(milliseconds(1));
                  EXPECT_TRUE(w->done());
                  EXPECT_EQ(text(w->wait(in_a_minute())), "");
                  for (float x : v) ASSERT_EQ(x, 2.0f);
                }),
            "0 0");
}

TEST(GlooWorld, NothingIsLeft) {
  auto count = [](const char* folder) {
    const std::filesystem::directory_iterator list(folder);
    return std::distance(begin(list), end(list));
  };
  const std::string folder = new_folder();
  Processes two(2, [&](int rank) {
    const auto open = count("/proc/self/fd"), threads = count("/proc/self/task");
    for (int i = 0; i < 3; ++i) {
      in_any_world(make, each(2), rank, folder + "/" + std::to_string(i),
                   [&](Communicator& c, int) { compare_with_threads(c, 8000, 10); });
      EXPECT_EQ(count("/proc/self/fd"), open);
      EXPECT_EQ(count("/proc/self/task"), threads);
    }
  });
  EXPECT_EQ(two.wait(), "0 0");
}

TEST(GlooWorld, JoinHasADeadline) {
  FolderStore store(new_folder());
  try {
    GlooWorld world(store, 2, {0}, {.timeout = milliseconds(50)});
    ADD_FAILURE() << "joined without rank 1";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kDeadlineExceeded);
    EXPECT_NE(std::string(e.what()).find("rank_1"), std::string::npos) << e.what();
  }
}

TEST(GlooWorld, WrongAddressIsNamed) {
  FolderStore store(new_folder());
  try {
    GlooWorld world(store, 1, {0}, {.interface = "no-such-interface"});
    ADD_FAILURE() << "joined";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("no-such-interface"), std::string::npos) << e.what();
  }
}

TEST(GlooFailure, MismatchesHaveTheSentencesOfThreadRanks) { check_mismatches(make); }

TEST(GlooFailure, WrongPeer) {
  auto c = make_thread_communicators(2, "world");
  const std::string want = text(c[0]->start({.kind = Collective::kSend, .peer = 0})->wait(in_a_minute()));
  EXPECT_EQ(run(each(2),
                [&](Communicator& c, int rank) {
                  if (rank == 0) {
                    EXPECT_EQ(text(c.start({.kind = Collective::kSend, .peer = 0})->wait(in_a_minute())), want);
                  } else {
                    EXPECT_EQ(text(c.start({})->wait(in_a_minute())), "collective aborted: " + want);
                  }
                }),
            "0 0");
}

TEST(GlooFailure, DeadlineNamesTheMissing) {
  EXPECT_EQ(run(each(3),
                [&](Communicator& c, int rank) {
                  std::vector<float> v(4);
                  EXPECT_EQ(text(c.start({})->wait(in_a_minute())), "");
                  if (rank < 2) {
                    auto work = c.start({.kind = Collective::kAllReduce, .in = view(v), .out = view(v), .site = 3});
                    EXPECT_FALSE(work->done());
                    auto error = work->wait(rank == 0 ? in(200) : in_a_minute());
                    EXPECT_EQ(text(error),
                              "all_reduce #2 over world: the deadline has passed; missing: rank 2 (last started "
                              "barrier #1); waiting in all_reduce sum of f32[4] (site 3): rank 0, rank 1");
                    EXPECT_EQ(error->code(), Code::kDeadlineExceeded);
                    EXPECT_TRUE(work->done());
                    return;
                  }
                  std::this_thread::sleep_for(milliseconds(400));
                  auto work = c.start({.kind = Collective::kAllReduce, .in = view(v), .out = view(v)});
                  EXPECT_EQ(work->wait(in_a_minute())->code(), Code::kAborted);
                }),
            "0 0 0");
}

TEST(GlooFailure, AbortDropAndRetireReachAllRanks) {
  for (int kind : {0, 1, 2, 3})
    EXPECT_EQ(
        run(each(3),
            [&](Communicator& c, int rank) {
              std::vector<float> v(30000), out(30000);
              auto start = [&] { return c.start({.kind = Collective::kAllReduce, .in = view(v), .out = view(out)}); };
              if (rank == 2) {
                std::this_thread::sleep_for(milliseconds(10));
                if (kind == 0) c.abort("rank 2: out of memory");
                if (kind == 1) start();
                if (kind == 2) set_retired(c, true);
                if (kind == 2) std::this_thread::sleep_for(milliseconds(100));
                return;  // kind 3: it leaves the world
              }
              if (kind == 1) std::this_thread::sleep_for(milliseconds(50));
              const auto begin = Clock::now();
              const std::string error = text(start()->wait(in_a_minute()));
              EXPECT_LT(std::chrono::duration<double>(Clock::now() - begin).count(), 0.5);
              const char* need[] = {"collective aborted: rank 2: out of memory", "rank 2 dropped it without waiting",
                                    "rank 2 returned without starting it", "rank 2 returned without starting it"};
              EXPECT_NE(error.find(need[kind]), error.npos) << error;
            }),
        "0 0 0");
}

TEST(GlooFailure, SplitHasADeadlineAndNeedsAllRanks) {
  EXPECT_EQ(run(each(2),
                [&](Communicator& c, int rank) {
                  if (rank == 1) std::this_thread::sleep_for(milliseconds(300));
                  const std::string error = weft::testing::placed_error_of([&] { c.split(0, 0, in(100)); });
                  EXPECT_NE(error.find(rank == 0 ? "missing: rank 1" : "collective aborted: "), error.npos);
                }),
            "0 0");
  EXPECT_EQ(run(each(2),
                [&](Communicator& c, int rank) {
                  const std::string error = rank == 0
                                                ? weft::testing::placed_error_of([&] { c.split(0, 0, in_a_minute()); })
                                                : text(c.start({})->wait(in_a_minute()));
                  EXPECT_EQ(error, "barrier #1 over world: some ranks call split() and others do not");
                }),
            "0 0");
}

// A rank leaves; the others still use what does not need it.
TEST(GlooFailure, LeavingFailsNothingElse) {
  EXPECT_EQ(run(each(3),
                [&](Communicator& c, int rank) {
                  EXPECT_EQ(text(c.start({})->wait(in_a_minute())), "");
                  if (rank == 2) return;
                  std::this_thread::sleep_for(milliseconds(50));
                  std::vector<float> v(50000, static_cast<float>(rank)), w(50000);
                  auto s = c.start({.kind = Collective::kSend, .in = view(v), .peer = 1 - rank});
                  auto r = c.start({.kind = Collective::kRecv, .out = view(w), .peer = 1 - rank});
                  EXPECT_EQ(text(s->wait(in_a_minute())), "");
                  EXPECT_EQ(text(r->wait(in_a_minute())), "");
                  EXPECT_EQ(w[49999], static_cast<float>(1 - rank));
                }),
            "0 0 0");
}

TEST(GlooFailure, ARetiredRankMayReturn) {
  EXPECT_EQ(run(each(2),
                [&](Communicator& c, int) {
                  for (int i = 0; i < 20; ++i) {
                    set_retired(c, false);
                    EXPECT_EQ(text(c.start({})->wait(in_a_minute())), "");
                    EXPECT_EQ(text(c.start({})->wait(in_a_minute())), "");
                  }
                  set_retired(c, true);
                }),
            "0 0");
}

}  // namespace
}  // namespace weft::dist
