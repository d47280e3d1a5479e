// If a process ends or stops, or a link is cut, the errors of the other ranks name the rank, and nothing hangs.
#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <cstdlib>

#include "distributed/comm/gloo/testing/tested_world.h"

namespace weft::testing {

INSTANTIATE_TEST_SUITE_P(Gloo, WorldDeath, ::testing::Values(gloo_world()));

}  // namespace weft::testing

namespace weft::dist {
namespace {

using namespace weft::testing;
using std::chrono::milliseconds;

Work::Deadline in(int ms) { return std::chrono::steady_clock::now() + milliseconds(ms); }

bool shell(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

// Joins two network namespaces by a virtual cable, and takes one end down while ranks send data (`busy`) or wait.
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
      const auto make = [&](Store& store, int size, std::vector<int> local) {
        return make_gloo_world(store, size, std::move(local), options);
      };
      in_world(make, each(2), rank, folder, [&](Communicator& c, ProcessWorld& world) {
        std::vector<float> v(200000, 1.0f), w(v.size());
        for (int i = 0; i < 20; ++i)
          ASSERT_EQ(text(c.start({.kind = Collective::kAllReduce, .in = view(v), .out = view(w)})->wait(in_a_minute())),
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
      });
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
