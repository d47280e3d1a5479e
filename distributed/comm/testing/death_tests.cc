#include "distributed/comm/testing/random_collectives.h"
#include "distributed/comm/testing/world_tests.h"

namespace weft::testing {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

Work::Deadline in(int ms) { return Clock::now() + milliseconds(ms); }

TEST_P(WorldDeath, AStoppedRankRaisesNoAlarm) {
  const std::string folder = new_folder();
  Common<Times> times;
  Processes three(3, [&](int rank) {
    in_world(GetParam().with({}), each(3), rank, folder, [&](Communicator& c, dist::ProcessWorld&) {
      std::vector<float> v(2000000, 1.0f), w(v.size());
      ++times->ready;
      while (true) {
        auto work = c.start({.kind = Collective::kAllReduce, .in = view(v), .out = view(w)});
        ASSERT_EQ(text(work->wait(in_a_minute())), "");
        ASSERT_EQ(w.back(), 3.0f);
        // All ranks end together.
        std::vector<int64_t> end{times->event && seconds_since(times->event) > 2.5}, any(1);
        auto agree = c.start({.kind = Collective::kAllReduce, .op = ReduceOp::kMax, .in = view(end), .out = view(any)});
        ASSERT_EQ(text(agree->wait(in_a_minute())), "");
        if (any[0]) break;
      }
    });
  });
  while (times->ready < 3) std::this_thread::yield();
  std::this_thread::sleep_for(milliseconds(20));
  three.signal(1, SIGSTOP);
  times->event = now();
  std::this_thread::sleep_for(milliseconds(2200));
  three.signal(1, SIGCONT);
  EXPECT_EQ(three.wait(), "0 0 0");
}

TEST_P(WorldDeath, AStoppedRankMeetsTheDeadline) {
  const std::string folder = new_folder();
  Common<Times> times;
  Processes two(2, [&](int rank) {
    in_world(GetParam().with({}), each(2), rank, folder, [&](Communicator& c, dist::ProcessWorld&) {
      std::vector<float> v(60000, 1.0f), w(60000);
      ++times->ready;
      std::string error;
      while (error.empty())
        error = text(c.start({.kind = Collective::kAllReduce, .in = view(v), .out = view(w)})->wait(in(300)));
      EXPECT_NE(error.find("the deadline has passed"), error.npos) << error;
      if (rank == 1) {
        EXPECT_LT(seconds_since(times->event), 0.6);
      }
    });
  });
  while (times->ready < 2) std::this_thread::yield();
  std::this_thread::sleep_for(milliseconds(20));
  times->event = now();
  two.signal(0, SIGSTOP);
  std::this_thread::sleep_for(milliseconds(1000));
  two.signal(0, SIGCONT);
  EXPECT_EQ(two.wait(), "0 0");
}

// Ranks run random collectives; one is killed at a random instant. All others get one error with its name.
TEST_P(WorldDeath, DeathAtAnyInstantIsNamed) {
  const auto end = Clock::now() + std::chrono::seconds(8);
  Common<Times> times;
  int seeds = 0;
  for (uint64_t seed = 1; seed <= 150 && Clock::now() < end; ++seed, ++seeds) {
    std::mt19937_64 random(seed);
    // The last process has one or two ranks.
    const int processes = 2 + static_cast<int>(random() % 2), victim = static_cast<int>(random() % processes);
    Layout layout = each(processes);
    if (random() % 3 == 0) layout.back().push_back(processes);
    const int n = layout.back().back() + 1;
    const std::string folder = new_folder();
    times->ready = 0;
    times->event = 0;
    Processes all(processes, [&](int process) {
      in_world(GetParam().with({.variant = seed}), layout, process, folder,
               [&](Communicator& c, dist::ProcessWorld& world) {
                 ++times->ready;
                 std::string error;
                 for (uint64_t i = 0; error.empty(); i += 4) {
                   std::vector<Started> some;
                   for (uint64_t j = i; j < i + 4; ++j) {
                     const RankOperands mine = random_collective(1000 * seed + j % 200, n)[c.rank()];
                     if (mine.takes_part) some.push_back(weft::testing::start(c, mine));
                   }
                   for (Started& s : some)
                     if (const auto e = s.work->wait(in_a_minute()); e && error.empty()) error = e->what();
                 }
                 times->longer(now() - times->event);
                 bool named = false;
                 for (int r : layout[victim])
                   for (const std::string& want : GetParam().death_errors(world, r)) named |= error == want;
                 EXPECT_TRUE(named) << error << "; seed " << seed;
                 EXPECT_EQ(text(c.start({})->wait(in_a_minute())), error);
               });
    });
    while (times->ready < n) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));
    times->event = now();
    all.signal(victim, SIGKILL);
    std::string want;
    for (int p = 0; p < processes; ++p) want += str_cat(p ? " " : "", p == victim ? "signal 9" : "0");
    ASSERT_EQ(all.wait(), want) << "seed " << seed;
    std::filesystem::remove_all(folder);
  }
  EXPECT_GE(seeds, GetParam().deaths);
  EXPECT_LT(times->longest * 1e-9, 0.5);
  std::printf("%d deaths; longest time to an error: %.2f ms\n", seeds, times->longest * 1e-6);
}

// If a process dies while the world starts, the others end by their deadline.
TEST_P(WorldDeath, DeathWhileRanksJoin) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    std::mt19937_64 random(seed);
    const std::string folder = new_folder();
    Processes all(3, [&](int rank) {
      std::string error;
      try {
        in_world(GetParam().with({.timeout = milliseconds(500)}), each(3), rank, folder,
                 [&](Communicator& c, dist::ProcessWorld&) {
                   while (error.empty()) error = text(c.start({})->wait(in_a_minute()));
                 });
      } catch (const Error& e) {
        error = e.what();
      }
      EXPECT_NE(error.find("rank"), error.npos) << error;
    });
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 8000));
    all.signal(1, SIGKILL);
    EXPECT_EQ(all.wait(), "0 signal 9 0") << "seed " << seed;
  }
}

}  // namespace
}  // namespace weft::testing
