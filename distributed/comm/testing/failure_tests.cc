#include "distributed/comm/testing/mismatches.h"
#include "distributed/comm/testing/world_tests.h"
#include "distributed/comm/threads.h"
#include "framework/base/testing/error_of.h"

namespace weft::testing {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

Work::Deadline in(int ms) { return Clock::now() + milliseconds(ms); }

TEST_P(WorldFailure, MismatchesHaveTheErrorsOfThreadRanks) { check_mismatches(GetParam().with({})); }

TEST_P(WorldFailure, WrongPeer) {
  auto c = dist::make_thread_communicators(2, "world");
  const std::string want = text(c[0]->start({.kind = Collective::kSend, .peer = 0})->wait(in_a_minute()));
  EXPECT_EQ(run(each(2),
                [&](Communicator& c, dist::ProcessWorld&) {
                  const int rank = c.rank();
                  if (rank == 0) {
                    EXPECT_EQ(text(c.start({.kind = Collective::kSend, .peer = 0})->wait(in_a_minute())), want);
                  } else {
                    EXPECT_EQ(text(c.start({})->wait(in_a_minute())), "collective aborted: " + want);
                  }
                }),
            "0 0");
}

TEST_P(WorldFailure, DeadlineNamesTheMissing) {
  EXPECT_EQ(run(each(3),
                [&](Communicator& c, dist::ProcessWorld&) {
                  const int rank = c.rank();
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

TEST_P(WorldFailure, AbortDropAndRetireReachAllRanks) {
  for (int kind : {0, 1, 2, 3})
    EXPECT_EQ(
        run(each(3),
            [&](Communicator& c, dist::ProcessWorld&) {
              const int rank = c.rank();
              std::vector<float> v(30000), out(30000);
              auto start = [&] { return c.start({.kind = Collective::kAllReduce, .in = view(v), .out = view(out)}); };
              if (rank == 2) {
                std::this_thread::sleep_for(milliseconds(10));
                if (kind == 0) c.abort("rank 2: out of memory");
                if (kind == 1) start();
                if (kind == 2) c.retire(true);
                if (kind == 2) std::this_thread::sleep_for(milliseconds(100));
                return;  // kind 3: the rank leaves the world
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

TEST_P(WorldFailure, SplitHasADeadlineAndNeedsAllRanks) {
  EXPECT_EQ(run(each(2),
                [&](Communicator& c, dist::ProcessWorld&) {
                  const int rank = c.rank();
                  if (rank == 1) std::this_thread::sleep_for(milliseconds(300));
                  const std::string error = placed_error_of([&] { c.split(0, 0, in(100)); });
                  EXPECT_NE(error.find(rank == 0 ? "missing: rank 1" : "collective aborted: "), error.npos);
                }),
            "0 0");
  EXPECT_EQ(run(each(2),
                [&](Communicator& c, dist::ProcessWorld&) {
                  const int rank = c.rank();
                  const std::string error = rank == 0 ? placed_error_of([&] { c.split(0, 0, in_a_minute()); })
                                                      : text(c.start({})->wait(in_a_minute()));
                  EXPECT_EQ(error, "barrier #1 over world: some ranks call split() and others do not");
                }),
            "0 0");
}

// A rank leaves; the others still use communicators without it.
TEST_P(WorldFailure, LeavingFailsNothingElse) {
  EXPECT_EQ(run(each(3),
                [&](Communicator& c, dist::ProcessWorld&) {
                  const int rank = c.rank();
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

TEST_P(WorldFailure, ARetiredRankMayReturn) {
  EXPECT_EQ(run(each(2),
                [&](Communicator& c, dist::ProcessWorld&) {
                  for (int i = 0; i < 20; ++i) {
                    c.retire(false);
                    EXPECT_EQ(text(c.start({})->wait(in_a_minute())), "");
                    EXPECT_EQ(text(c.start({})->wait(in_a_minute())), "");
                  }
                  c.retire(true);
                }),
            "0 0");
}

}  // namespace
}  // namespace weft::testing
