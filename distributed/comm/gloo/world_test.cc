#include "distributed/comm/gloo/world.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "distributed/comm/gloo/testing/tested_world.h"
#include "distributed/comm/testing/compare_with_threads.h"

namespace weft::testing {

INSTANTIATE_TEST_SUITE_P(Gloo, WorldCommunicators, ::testing::Values(gloo_world()));
INSTANTIATE_TEST_SUITE_P(Gloo, WorldFailure, ::testing::Values(gloo_world()));

}  // namespace weft::testing

namespace weft::dist {
namespace {

using namespace weft::testing;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// A collective that has started ends although its ranks compute.
TEST(GlooWorld, ProgressWhileRanksCompute) {
  EXPECT_EQ(run_world(gloo_world().with({}), each(2),
                      [](Communicator& c, ProcessWorld&) {
                        std::vector<float> v(1 << 20, 1.0f);
                        auto w = c.start({.kind = Collective::kAllReduce, .in = view(v), .out = view(v)});
                        // The test does not call wait().
                        const auto end = Clock::now() + std::chrono::seconds(10);
                        while (!w->done() && Clock::now() < end) std::this_thread::sleep_for(milliseconds(1));
                        EXPECT_TRUE(w->done());
                        EXPECT_EQ(text(w->wait(in_a_minute())), "");
                        for (float x : v) ASSERT_EQ(x, 2.0f);
                      }),
            "0 0");
}

// Worlds that wait for `time` after a mismatch of two ranks.
MakeWorld settling(std::chrono::nanoseconds time) {
  return [time](Store& store, int size, std::vector<int> local) {
    return make_gloo_world(store, size, std::move(local), {.settles = time});
  };
}

// A mismatch of two ranks does not show which rank is wrong: for a short time, a third may still start its collective.
TEST(GlooWorld, AMismatchWaitsForOtherRanks) {
  for (const bool comes : {true, false}) {
    const auto time = comes ? std::chrono::seconds(30) : std::chrono::seconds(0);
    EXPECT_EQ(run_world(settling(time), each(3),
                        [&](Communicator& c, ProcessWorld&) {
                          std::vector<float> v(4), w(4);
                          const ReduceOp op = c.rank() == 0 ? ReduceOp::kMax : ReduceOp::kSum;
                          if (c.rank() == 2) std::this_thread::sleep_for(milliseconds(comes ? 10 : 500));
                          const auto error =
                              c.start({.kind = Collective::kAllReduce, .op = op, .in = view(v), .out = view(w)})
                                  ->wait(in_a_minute());
                          EXPECT_NE(text(error).find(" started all_reduce max of f32[4]"), std::string::npos)
                              << text(error);
                          const bool late = c.rank() == 2 && !comes;
                          EXPECT_EQ(text(error).starts_with("collective aborted: "), late) << text(error);
                        }),
              "0 0 0");
  }
}

// A rank that waits for a later collective also gets the error of the mismatch, although a third rank starts neither.
TEST(GlooWorld, AMismatchEndsLaterCollectives) {
  EXPECT_EQ(run_world(settling(milliseconds(1)), each(3),
                      [&](Communicator& c, ProcessWorld&) {
                        std::vector<float> v(4), w(4), x(4);
                        const ReduceOp op = c.rank() == 0 ? ReduceOp::kMax : ReduceOp::kSum;
                        if (c.rank() == 2) std::this_thread::sleep_for(milliseconds(500));
                        const auto first =
                            c.start({.kind = Collective::kAllReduce, .op = op, .in = view(v), .out = view(w)});
                        const auto second = c.start({.kind = Collective::kAllReduce, .in = view(v), .out = view(x)});
                        for (const auto& work : {second, first}) {
                          const std::string error = text(work->wait(in_a_minute()));
                          EXPECT_NE(error.find(" started all_reduce max of f32[4]"), std::string::npos) << error;
                        }
                      }),
            "0 0 0");
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
      in_world(gloo_world().with({}), each(2), rank, folder + "/" + std::to_string(i),
               [&](Communicator& c, ProcessWorld&) { compare_with_threads(c, 8000, 10); });
      EXPECT_EQ(count("/proc/self/fd"), open);
      EXPECT_EQ(count("/proc/self/task"), threads);
    }
  });
  EXPECT_EQ(two.wait(), "0 0");
}

TEST(GlooWorld, WrongAddressIsNamed) {
  FolderStore store(new_folder());
  try {
    make_gloo_world(store, 1, {0}, {.interface = "no-such-interface"});
    ADD_FAILURE() << "joined";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("no-such-interface"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace weft::dist
