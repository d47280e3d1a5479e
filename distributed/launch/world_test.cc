#include "distributed/launch/world.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <latch>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>

#include "framework/base/testing/error_of.h"
#include "framework/base/thread_pool.h"
#include "framework/tensor/tensor.h"

namespace weft::dist {
namespace {

using testing::error_of;

StridedView view(std::vector<int64_t>& v) {
  return {v.data(), kInt64, Shape{static_cast<int64_t>(v.size())}, Shape{1}};
}

int64_t sum_over(const std::string& axes, int64_t mine) {
  std::vector<int64_t> in{mine}, out(1);
  RankContext::current()->run(axes, {.kind = Collective::kAllReduce, .in = view(in), .out = view(out)});
  return out[0];
}

TEST(World, RanksKnowWhoTheyAre) {
  World world(Mesh{{"dp", 2}, {"tp", 2}});
  EXPECT_EQ(RankContext::current(), nullptr);
  std::mutex mutex;
  std::set<std::thread::id> threads;
  for (int again = 0; again < 3; ++again)
    world.run([&](int rank) {
      RankContext& me = *RankContext::current();
      EXPECT_EQ(me.rank(), rank);
      EXPECT_EQ(me.size(), 4);
      EXPECT_EQ(me.device(), Device::cpu(rank));
      EXPECT_EQ(me.communicator("tp").rank(), rank % 2);
      EXPECT_EQ(me.communicator("dp").rank(), rank / 2);
      std::lock_guard lock(mutex);
      threads.insert(std::this_thread::get_id());
    });
  EXPECT_EQ(threads.size(), 4u);
}

TEST(World, SubGroupsOfACube) {
  World world(Mesh{{"a", 2}, {"b", 2}, {"c", 2}});
  world.run([](int r) {
    const int64_t v = int64_t{1} << (8 * (r / 4 + 2 * (r / 2 % 2) + 4 * (r % 2)));  // each rank adds into its own byte
    auto expect = [&](const std::string& axes, int mask) {
      int64_t want = 0;
      for (int p = 0; p < 8; ++p)
        if ((p & ~mask) == (r & ~mask)) want += int64_t{1} << (8 * (p / 4 + 2 * (p / 2 % 2) + 4 * (p % 2)));
      EXPECT_EQ(sum_over(axes, v), want) << axes;
    };
    expect("a", 4);
    expect("b", 2);
    expect("c", 1);
    expect("a,b", 6);
    expect("c,a", 5);
    expect("world", 7);
    // Major first: in "c,a" the rank moves fastest along a.
    EXPECT_EQ(RankContext::current()->communicator("c,a").rank(), 2 * (r % 2) + r / 4);
  });
}

TEST(World, SixteenRanks) {
  World world(Mesh{{"dp", 4}, {"tp", 4}}, {.threads = 2});
  world.run([](int r) {
    EXPECT_EQ(num_threads(), 1);
    for (int i = 0; i < 100; ++i) {
      EXPECT_EQ(sum_over("world", r + i), 120 + 16 * i);
      EXPECT_EQ(sum_over("tp", r), 16 * (r / 4) + 6);
    }
  });
}

TEST(World, CoresAreShared) {
  World world(Mesh{{"dp", 2}}, {.threads = 5});
  std::atomic<int> threads{0};
  world.run([&](int) { threads += num_threads(); });
  EXPECT_EQ(threads, 5);
}

TEST(World, TheFirstErrorWakesAllAndIsNamed) {
  World world(Mesh{{"dp", 4}});
  for (int again = 0; again < 3; ++again) {
    EXPECT_EQ(error_of([&] {
                world.run([](int r) {
                  WEFT_CHECK(r != 2, "loader: out of data");
                  sum_over("dp", 1);
                });
              }),
              "rank 2: loader: out of data");
    world.run([](int) { EXPECT_EQ(sum_over("dp", 1), 4); });  // the world is usable again
  }
  EXPECT_EQ(error_of([&] {
              world.run([](int r) {
                if (r == 1) throw std::runtime_error("boom");
                sum_over("world", 1);
              });
            }),
            "rank 1: boom");
  EXPECT_NE(error_of([&] { world.run([](int) { sum_over("tq", 1); }); }).find("tq"), std::string::npos);
}

TEST(World, ADeadlineNamesWhoIsMissing) {
  World world(Mesh{{"dp", 3}}, {.timeout = std::chrono::milliseconds(50)});
  std::latch failed(2);
  const std::string text = error_of([&] {
    world.run([&](int r) {
      if (r == 1) return failed.wait();
      try {
        sum_over("dp", 1);
      } catch (...) {
        failed.count_down();
        throw;
      }
    });
  });
  EXPECT_NE(text.find("all_reduce #1 over dp: the deadline has passed; missing: rank 1 (started nothing yet)"),
            std::string::npos)
      << text;
  world.run([](int) { EXPECT_EQ(sum_over("dp", 1), 3); });
}

TEST(World, ARankThatHasReturnedIsNotWaitedFor) {
  World world(Mesh{{"dp", 3}});
  for (int again = 0; again < 3; ++again) {
    const std::string text = error_of([&] {
      world.run([](int r) {
        sum_over("dp", 1);
        if (r != 1) sum_over("dp", 1);
      });
    });
    EXPECT_NE(text.find("over dp: rank 1 returned without starting it; missing: "), std::string::npos) << text;
    world.run([](int r) {
      if (r == 2) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      for (int i = 0; i < 3; ++i) EXPECT_EQ(sum_over("dp", 1), 3);
    });
  }
}

TEST(World, CollectivesLeftOverAreAnError) {
  World world(Mesh{{"dp", 2}});
  std::vector<std::vector<int64_t>> buffers(4, std::vector<int64_t>(1));
  const std::string text = error_of([&] {
    world.run([&](int r) {
      RankContext::current()->start(
          "dp",
          {.kind = Collective::kAllReduce, .in = view(buffers[2 * r]), .out = view(buffers[2 * r + 1]), .site = 4});
    });
  });
  EXPECT_NE(text.find("1 collectives were started but not waited for"), std::string::npos) << text;
}

TEST(World, StartAndFinishBySite) {
  World world(Mesh{{"dp", 2}});
  world.run([&](int r) {
    RankContext& me = *RankContext::current();
    std::vector<int64_t> a{r}, b{r + 10}, x(1), y(1);
    me.start("dp", {.kind = Collective::kAllReduce, .in = view(a), .out = view(x), .site = 1});
    me.start("dp", {.kind = Collective::kAllReduce, .in = view(b), .out = view(y), .site = 2});
    EXPECT_EQ(me.under_way(), 2u);
    EXPECT_NE(error_of([&] {
                me.start("dp", {.kind = Collective::kBarrier, .site = 2});
              }).find("already in progress at site 2"),
              std::string::npos);
    me.finish(2);
    me.finish(1);
    EXPECT_EQ(x[0], 1);
    EXPECT_EQ(y[0], 21);
    EXPECT_NE(error_of([&] { me.finish(1); }).find("no collective is in progress at site 1"), std::string::npos);
  });
}

TEST(World, AChildOfForkReportsThatTheRanksAreInItsParent) {
  auto world = std::make_unique<World>(Mesh{{"dp", 2}});
  world->run([](int) {});
  const pid_t child = fork();
  if (child == 0) {
    const std::string e = error_of([&] { world->run([](int) {}); });
    world.reset();
    _exit(e.find("world: fork() made this process, and the threads of the ranks stayed in its parent") != 0);
  }
  int status = -1;
  bool ended = false;
  for (int i = 0; i < 2000 && !(ended = waitpid(child, &status, WNOHANG) == child); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  if (!ended) kill(child, SIGKILL);
  EXPECT_TRUE(ended) << "the child hangs";
  EXPECT_EQ(status, 0);
  world->run([](int) {});
}

TEST(World, Statistics) {
  World world(Mesh{{"dp", 2}, {"tp", 2}}, {.record = true});
  world.run([](int r) {
    sum_over("tp", r);
    sum_over("tp", r);
    sum_over("dp", r);
  });
  const CollectiveRecord tp{Collective::kAllReduce, "tp", kInt64, 8, 0}, dp{Collective::kAllReduce, "dp", kInt64, 8, 0};
  for (int r = 0; r < 4; ++r) {
    EXPECT_EQ(world.rank(r).records(), (std::vector<CollectiveRecord>{tp, tp, dp}));
    const CollectiveTotal& t = world.rank(r).totals().at({Collective::kAllReduce, "tp"});
    EXPECT_EQ(t.count, 2);
    EXPECT_EQ(t.bytes, 16);
  }
  EXPECT_NE(world.statistics().find("all_reduce      tp"), std::string::npos) << world.statistics();
  world.clear_statistics();
  world.record(false);
  world.run([](int r) { sum_over("tp", r); });
  EXPECT_TRUE(world.rank(0).records().empty());
}

// Rank 1 comes late: rank 0 waits for it, and it waits for nobody.
TEST(World, WaitingForTheSlowestIsKnown) {
  World world(Mesh{{"dp", 2}});
  std::array<std::chrono::steady_clock::time_point, 2> started, ended;
  std::atomic<bool> entered{false};
  world.run([&](int r) {
    if (r == 0) entered = true;
    while (!entered) std::this_thread::yield();
    if (r == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    started[r] = std::chrono::steady_clock::now();
    sum_over("dp", r);
    ended[r] = std::chrono::steady_clock::now();
  });
  const WaitedSeconds fast = world.rank(0).waited(), slow = world.rank(1).waited();
  const auto between = [](auto from, auto to) { return std::chrono::duration<double>(to - from).count(); };
  EXPECT_GT(fast.late, slow.late);
  EXPECT_LE(fast.late, fast.all);
  EXPECT_LE(slow.late, slow.all);
  EXPECT_LE(fast.all, between(started[0], ended[0]));
  // The wait may end a moment after the late rank has started.
  EXPECT_LE(slow.late, between(started[1], ended[1]));
  EXPECT_LE(fast.late, between(started[0], ended[1]));
  world.clear_statistics();
  EXPECT_EQ(world.rank(0).waited().late, 0);
}

TEST(World, BadUseIsOneClearError) {
  EXPECT_NE(error_of([] { World(Mesh{{"dp", 2}}, {.threads = -1}); }).find("threads is -1"), std::string::npos);
  World world(Mesh{{"dp", 2}});
  EXPECT_NE(error_of([&] {
              world.run([&](int r) {
                if (r == 0) world.run([](int) {});
              });
            }).find("run() is already in progress"),
            std::string::npos);
  EXPECT_NE(error_of([] { RankContext::require("all_reduce"); }).find("all_reduce: this thread is not a rank"),
            std::string::npos);
  EXPECT_THROW(world.rank(2), Error);
}

}  // namespace
}  // namespace weft::dist
