// What ranks see when a process ends or stops, or a link is cut: the rank is named, and nothing hangs.
#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>

#include "distributed/comm/gloo/world.h"
#include "distributed/comm/testing/random_collectives.h"
#include "distributed/comm/testing/support.h"

namespace weft::dist {
namespace {

using namespace weft::testing;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

Work::Deadline in(int ms) { return Clock::now() + milliseconds(ms); }

using Body = std::function<void(Communicator&, GlooWorld&)>;
void in_world(const Layout& layout, int process, const std::string& folder, const Body& body,
              GlooWorldOptions options = {}) {
  FolderStore store(folder);
  int n = 0;
  for (const auto& ranks : layout) n += static_cast<int>(ranks.size());
  GlooWorld world(store, n, layout[process], options);
  auto mine = world.communicators("world", all_of(n));
  on_threads(mine.size(), [&](size_t i) { body(*mine[i], world); });
}

TEST(GlooDeath, AStoppedRankRaisesNoAlarm) {
  const std::string folder = new_folder();
  Common<Times> times;
  Processes three(3, [&](int rank) {
    in_world(each(3), rank, folder,
             [&](Communicator& c, GlooWorld&) {
               std::vector<float> v(2000000, 1.0f), w(v.size());
               ++times->ready;
               while (true) {
                 auto work = c.start({.kind = Collective::kAllReduce, .in = view(v), .out = view(w)});
                 ASSERT_EQ(text(work->wait(in_a_minute())), "");
                 ASSERT_EQ(w.back(), 3.0f);
                 // All ranks end together.
                 std::vector<int64_t> end{times->event && seconds_since(times->event) > 2.5}, any(1);
                 auto agree =
                     c.start({.kind = Collective::kAllReduce, .op = ReduceOp::kMax, .in = view(end), .out = view(any)});
                 ASSERT_EQ(text(agree->wait(in_a_minute())), "");
                 if (any[0]) break;
               }
             },
             {.silence = std::chrono::seconds(1)});
  });
  while (times->ready < 3) std::this_thread::yield();
  std::this_thread::sleep_for(milliseconds(20));
  three.signal(1, SIGSTOP);
  times->event = now();
  std::this_thread::sleep_for(milliseconds(2200));
  three.signal(1, SIGCONT);
  EXPECT_EQ(three.wait(), "0 0 0");
}

TEST(GlooDeath, AStoppedRankMeetsTheDeadline) {
  const std::string folder = new_folder();
  Common<Times> times;
  Processes two(2, [&](int rank) {
    in_world(each(2), rank, folder, [&](Communicator& c, GlooWorld&) {
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

// Ranks run random collectives; one is killed at a random instant. All others get one sentence that names it.
TEST(GlooDeath, DeathAtAnyInstantIsNamed) {
  const auto end = Clock::now() + std::chrono::seconds(5);
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
      in_world(layout, process, folder, [&](Communicator& c, GlooWorld& world) {
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
          for (int p = -1; p < n; ++p) {
            const std::string reporter = p < 0 ? "" : str_cat("rank ", p, " reports: ");
            named |=
                error == str_cat("collective aborted: ", reporter, world.name_of(r), " has died or cannot be reached");
          }
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
  EXPECT_GE(seeds, 8);
  EXPECT_LT(times->longest * 1e-9, 0.5);
  std::printf("%d deaths; longest time to an error: %.2f ms\n", seeds, times->longest * 1e-6);
}

// Death while the world starts: the others end by their deadline.
TEST(GlooDeath, DeathWhileRanksJoin) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    std::mt19937_64 random(seed);
    const std::string folder = new_folder();
    Processes all(3, [&](int rank) {
      std::string error;
      try {
        in_world(each(3), rank, folder,
                 [&](Communicator& c, GlooWorld&) {
                   while (error.empty()) error = text(c.start({})->wait(in_a_minute()));
                 },
                 {.timeout = milliseconds(300)});
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

bool shell(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

// Two network namespaces joined by a cable of which one end goes down, while data is sent (`busy`) or ranks wait.
void cut_a_link(bool busy) {
  const std::string folder = new_folder();
  Common<Times> times;
  Processes host(1, [&](int) {
    if (unshare(CLONE_NEWNET | (geteuid() == 0 ? 0 : CLONE_NEWUSER)) != 0) {
      std::printf("not tested: no right to make network namespaces\n");
      return;
    }
    struct Setup {
      std::atomic<int> separate{0}, joined{0};
    };
    Common<Setup> setup;
    Processes two(2, [&](int rank) {
      const bool can = unshare(CLONE_NEWNET) == 0;
      ++setup->separate;
      while (!setup->joined) std::this_thread::sleep_for(milliseconds(1));
      if (setup->joined < 0) return;
      ASSERT_TRUE(can);
      const std::string address = str_cat("10.77.0.", rank + 1);
      ASSERT_TRUE(
          shell(str_cat("ip link set lo up && ip addr add ", address, "/24 dev cable && ip link set cable up")));
      GlooWorldOptions options;
      if (!busy) options.address = address;
      options.timeout = std::chrono::seconds(10);
      options.silence = std::chrono::seconds(1);
      in_world(
          each(2), rank, folder,
          [&](Communicator& c, GlooWorld& world) {
            std::vector<float> v(200000, 1.0f), w(v.size());
            for (int i = 0; i < 20; ++i)
              ASSERT_EQ(
                  text(c.start({.kind = Collective::kAllReduce, .in = view(v), .out = view(w)})->wait(in_a_minute())),
                  "");
            if (rank == 0) {
              times->event = now();
              ASSERT_TRUE(shell("ip link set cable down"));
            }
            std::optional<Error> error;
            if (rank == 1 || busy) {
              while (!error)
                error = c.start({.kind = Collective::kAllReduce, .in = view(v), .out = view(w)})->wait(in(20000));
            } else {
              error = c.start({.kind = Collective::kRecv, .out = view(w), .peer = 1})->wait(in(20000));
            }
            times->longer(now() - times->event);
            EXPECT_EQ(text(error),
                      str_cat("collective aborted: ", world.name_of(1 - rank), " has died or cannot be reached"));
          },
          options);
    });
    while (setup->separate < 2) std::this_thread::sleep_for(milliseconds(1));
    const bool joined =
        shell(str_cat("ip link add cable netns ", two.pid(0), " type veth peer name cable netns ", two.pid(1)));
    if (!joined) std::printf("not tested: cannot join network namespaces by ip link\n");
    setup->joined = joined ? 1 : -1;
    EXPECT_EQ(two.wait(), "0 0");
  });
  EXPECT_EQ(host.wait(), "0");
  if (times->longest) {
    EXPECT_LT(times->longest * 1e-9, 3);
    std::printf("%s ranks: longest time to an error: %.2f s\n", busy ? "busy" : "idle", times->longest * 1e-9);
  }
}
TEST(GlooDeath, ACutLinkIsNamedWhileDataIsSent) { cut_a_link(true); }
TEST(GlooDeath, ACutLinkIsNamedWhileRanksWait) { cut_a_link(false); }

}  // namespace
}  // namespace weft::dist
