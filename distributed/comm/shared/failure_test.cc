// What ranks see when one of them fails: every error is compared with that of thread ranks, and nothing hangs.
#include <gtest/gtest.h>

#include <atomic>
#include <random>

#include "distributed/comm/shared/testing/world_support.h"
#include "distributed/comm/threads.h"
#include "framework/base/testing/error_of.h"

namespace weft::dist {
namespace {

using namespace weft::testing;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

Work::Deadline in(int ms) { return Clock::now() + milliseconds(ms); }
double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

struct Row {
  std::function<CommRequest(int rank)> request;
  bool split = false;
};

TEST(SharedFailure, MismatchesHaveTheSentencesOfThreadRanks) {
  static std::vector<float> f(6), g(6), h(40000), hh(40000);
  static std::vector<double> d(6);
  static const int64_t three[] = {1, 1, 1};
  auto wide = [](std::vector<float>& v, int64_t n) { return StridedView{v.data(), kFloat32, {n}, {1}}; };
  auto reduce = [=](int64_t n, ReduceOp op = ReduceOp::kSum, uint64_t site = 0) {
    return CommRequest{.kind = Collective::kAllReduce, .op = op, .in = wide(f, n), .out = wide(g, n), .site = site};
  };
  using C = Collective;
  const Row rows[] = {
      {[=](int r) { return r ? CommRequest{.kind = C::kBarrier} : reduce(4, ReduceOp::kSum, 7); }},
      {[=](int r) { return reduce(r ? 6 : 4); }},
      {[=](int r) { return reduce(4, r ? ReduceOp::kMax : ReduceOp::kSum); }},
      {[=](int r) { return r ? CommRequest{.kind = C::kAllReduce, .in = view(d), .out = view(d)} : reduce(6); }},
      {[=](int r) { return CommRequest{.kind = C::kBroadcast, .in = view(f), .out = view(g), .peer = r}; }},
      {[=](int) { return CommRequest{.kind = C::kBroadcast, .in = view(f), .out = view(g), .peer = 5}; }},
      {[=](int r) { return CommRequest{.kind = C::kPermute, .in = view(f), .out = view(g), .shift = r}; }},
      {[=](int r) { return CommRequest{.kind = C::kAllGather, .in = view(f), .out = view(g), .out_dim = r ? 0 : 3}; }},
      {[=](int) { return CommRequest{.kind = C::kAllGather, .in = view(f), .out = view(g), .out_dim = 3}; }},
      {[=](int) { return CommRequest{.kind = C::kAllGather, .in = wide(f, 3), .out = wide(g, 5)}; }},
      {[=](int) {
        return CommRequest{.kind = C::kReduceScatter, .in = view(f), .out = wide(g, 3), .send_counts = three};
      }},
      {[=](int r) {
        return r ? CommRequest{.kind = C::kRecv, .out = view(d), .peer = 0}
                 : CommRequest{.kind = C::kSend, .in = view(f), .peer = 1};
      }},
      {[=](int r) {
        return r ? CommRequest{.kind = C::kRecv, .out = wide(f, 5), .peer = 0}
                 : CommRequest{.kind = C::kSend, .in = view(f), .peer = 1};
      }},
      // Large enough to be divided among the ranks.
      {[=](int r) {
        return CommRequest{.kind = C::kAllReduce, .in = wide(h, r ? 40000 : 39999), .out = wide(hh, r ? 40000 : 39999)};
      }},
      {[](int) {
        static std::vector<int64_t> i(6);
        return CommRequest{.kind = C::kAllReduce, .op = ReduceOp::kAvg, .in = view(i), .out = view(i)};
      }},
  };
  Common<Times> times;
  for (const Row& row : rows) {
    auto c = make_thread_communicators(2, "tp");
    auto a = c[0]->start(row.request(0)), b = c[1]->start(row.request(1));
    const std::string want = text(a->wait(in_a_minute())), later_want = text(c[0]->start({})->wait(in_a_minute()));
    const Code code = b->wait(in_a_minute())->code();
    EXPECT_NE(want, "");
    const std::string folder = new_folder();
    times->event = 0;
    Processes two(2, [&](int rank) {
      FolderStore store(folder);
      SharedWorld world(store, 2, {rank});
      auto c = world.communicators("tp", {0, 1})[0];
      if (rank == 1) std::this_thread::sleep_for(milliseconds(15));  // rank 0 is the first
      if (rank == 1) times->event = now();
      auto work = c->start(row.request(rank));
      const auto error = work->wait(in_a_minute());
      times->longer(now() - times->event);
      EXPECT_EQ(text(error), want);
      if (!error) return;
      EXPECT_EQ(error->code(), code);
      for (int i = 0; i < 3; ++i) {
        const auto later = c->start({})->wait(in_a_minute());
        EXPECT_EQ(text(later), later_want);
        EXPECT_EQ(later->code(), Code::kAborted);
      }
    });
    EXPECT_EQ(two.wait(), "0 0") << want;
  }
  EXPECT_LT(times->longest * 1e-9, 0.1);
  std::printf("longest time from the second rank's start to an error: %.2f ms\n", times->longest * 1e-6);
}

TEST(SharedFailure, WrongPeer) {
  auto c = make_thread_communicators(2, "world");
  const std::string want = text(c[0]->start({.kind = Collective::kSend, .peer = 0})->wait(in_a_minute()));
  EXPECT_EQ(run_world(each(2),
                      [&](Communicator& c, SharedWorld&, int rank) {
                        if (rank == 0) {
                          EXPECT_EQ(text(c.start({.kind = Collective::kSend, .peer = 0})->wait(in_a_minute())), want);
                        } else {
                          EXPECT_EQ(text(c.start({})->wait(in_a_minute())), "collective aborted: " + want);
                        }
                      }),
            "0 0");
}

TEST(SharedFailure, DeadlineNamesTheMissing) {
  EXPECT_EQ(run_world(each(3),
                      [&](Communicator& c, SharedWorld&, int rank) {
                        std::vector<float> v(4);
                        EXPECT_EQ(text(c.start({})->wait(in_a_minute())), "");
                        if (rank < 2) {
                          auto work =
                              c.start({.kind = Collective::kAllReduce, .in = view(v), .out = view(v), .site = 3});
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

TEST(SharedFailure, AbortDropAndRetireReachAllRanks) {
  for (int kind : {0, 1, 2, 3})
    EXPECT_EQ(run_world(each(3),
                        [&](Communicator& c, SharedWorld&, int rank) {
                          std::vector<float> v(30000), out(30000);
                          auto start = [&] {
                            return c.start({.kind = Collective::kAllReduce, .in = view(v), .out = view(out)});
                          };
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
                          EXPECT_LT(seconds(Clock::now() - begin), 0.5);
                          const char* need[] = {
                              "collective aborted: rank 2: out of memory", "rank 2 dropped it without waiting",
                              "rank 2 returned without starting it", "rank 2 returned without starting it"};
                          EXPECT_NE(error.find(need[kind]), error.npos) << error;
                        }),
              "0 0 0");
}

TEST(SharedFailure, SplitHasADeadlineAndNeedsAllRanks) {
  EXPECT_EQ(run_world(each(2),
                      [&](Communicator& c, SharedWorld&, int rank) {
                        if (rank == 1) std::this_thread::sleep_for(milliseconds(300));
                        const std::string error = weft::testing::placed_error_of([&] { c.split(0, 0, in(100)); });
                        EXPECT_NE(error.find(rank == 0 ? "missing: rank 1" : "collective aborted: "), error.npos);
                      }),
            "0 0");
  EXPECT_EQ(run_world(each(2),
                      [&](Communicator& c, SharedWorld&, int rank) {
                        const std::string error =
                            rank == 0 ? weft::testing::placed_error_of([&] { c.split(0, 0, in_a_minute()); })
                                      : text(c.start({})->wait(in_a_minute()));
                        EXPECT_EQ(error, "barrier #1 over world: some ranks call split() and others do not");
                      }),
            "0 0");
}

// Deadlines that pass while the others complete the collective.
TEST(SharedFailure, ACollectiveSucceedsOnAllRanksOrOnNone) {
  struct Counts {
    std::atomic<int> successes[3];
  };
  Common<Counts> counts;
  int failed_late = 0;
  for (uint64_t seed = 1; seed <= 80; ++seed) {
    const int n = 2 + static_cast<int>(seed % 2);
    for (auto& c : counts->successes) c = 0;
    EXPECT_EQ(
        run_world(each(n),
                  [&](Communicator& c, SharedWorld& world, int rank) {
                    std::mt19937_64 random(seed * 10 + rank);
                    float* shared = static_cast<float*>(world.heap(rank).allocate(200000));
                    std::fill(shared, shared + 50000, 0.0f);
                    std::vector<float> v(50000);
                    EXPECT_EQ(text(c.start({})->wait(in_a_minute())), "");
                    for (int i = 0; i < 100000; ++i) {
                      const StridedView x{i % 4 < 3 ? shared : v.data(), kFloat32, {i % 4 == 1 ? 10 : 50000}, {1}};
                      const CommRequest r =
                          i % 4 == 0 ? CommRequest{} : CommRequest{.kind = Collective::kAllReduce, .in = x, .out = x};
                      const auto patience = std::chrono::microseconds(random() % 50 ? 20000 : random() % 400);
                      if (c.start(r)->wait(Clock::now() + patience)) break;
                      ++counts->successes[rank];
                    }
                  }),
        n == 2 ? "0 0" : "0 0 0");
    for (int r = 1; r < n; ++r) ASSERT_EQ(counts->successes[r], counts->successes[0]) << "seed " << seed;
    failed_late += counts->successes[0] > 3;
  }
  std::printf("%d of 80 runs failed after more than three collectives\n", failed_late);
}

// A rank leaves; the others still use what does not need it.
TEST(SharedFailure, LeavingFailsNothingElse) {
  EXPECT_EQ(run_world(each(3),
                      [&](Communicator& c, SharedWorld&, int rank) {
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

TEST(SharedFailure, ARetiredRankMayReturn) {
  EXPECT_EQ(run_world(each(2),
                      [&](Communicator& c, SharedWorld&, int) {
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
