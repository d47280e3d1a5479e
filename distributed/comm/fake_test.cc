#include "distributed/comm/fake.h"

#include <gtest/gtest.h>

namespace weft::dist {
namespace {

const Work::Deadline kNow = std::chrono::steady_clock::now();
StridedView meta(const Shape& shape) { return {nullptr, kFloat32, shape, contiguous_strides(shape)}; }

TEST(FakeCommunicator, RecordsAndMovesNothing) {
  std::vector<CollectiveRecord> log;
  auto c = make_fake_communicator(7, 4000, "fsdp", &log);
  EXPECT_EQ(c->rank(), 7);
  EXPECT_EQ(c->size(), 4000);
  EXPECT_FALSE(
      c->start({.kind = Collective::kAllGather, .in = meta({2, 3}), .out = meta({8000, 3}), .site = 5})->wait(kNow));
  EXPECT_FALSE(c->start({.kind = Collective::kSend, .in = meta({3}), .peer = 8})->wait(kNow));
  EXPECT_FALSE(c->start({.kind = Collective::kBarrier})->wait(kNow));
  ASSERT_EQ(log.size(), 3u);
  EXPECT_EQ(log[0], (CollectiveRecord{Collective::kAllGather, "fsdp", kFloat32, 8000 * 3 * 4, 5}));
  EXPECT_EQ(log[1].bytes, 12);
  EXPECT_EQ(log[2].bytes, 0);
}

TEST(FakeCommunicator, WhatOneRankCanSeeIsWrongIsAnError) {
  auto c = make_fake_communicator(0, 4);
  EXPECT_TRUE(c->start({.kind = Collective::kSend, .in = meta({3}), .peer = 0})->wait(kNow));
  EXPECT_TRUE(c->start({.kind = Collective::kBroadcast, .in = meta({3}), .out = meta({3}), .peer = 4})->wait(kNow));
  const int64_t three[] = {1, 1, 1};
  EXPECT_TRUE(
      c->start({.kind = Collective::kAllToAll, .in = meta({3}), .out = meta({3}), .send_counts = three})->wait(kNow));
  c->abort("stop");
  EXPECT_EQ(c->start({.kind = Collective::kBarrier})->wait(kNow)->code(), Code::kAborted);
  EXPECT_THROW(make_fake_communicator(4, 4), Error);
}

TEST(FakeRank, RunsCollectivesOfAWorldThatIsNotThere) {
  auto rank = make_fake_rank(
      4001, 8000, [](const std::string& axes) { return axes == "tp" ? std::pair(1, 8) : std::pair(500, 1000); });
  EXPECT_EQ(rank->size(), 8000);
  EXPECT_EQ(rank->communicator("tp").rank(), 1);
  EXPECT_EQ(rank->communicator("dp").size(), 1000);
  rank->run("tp", {.kind = Collective::kAllReduce, .in = meta({4}), .out = meta({4})});
  rank->start("dp", {.kind = Collective::kReduceScatter, .in = meta({2000}), .out = meta({2}), .site = 3});
  rank->finish(3);
  EXPECT_EQ(rank->records(), (std::vector<CollectiveRecord>{{Collective::kAllReduce, "tp", kFloat32, 16, 0},
                                                            {Collective::kReduceScatter, "dp", kFloat32, 8000, 3}}));
}

}  // namespace
}  // namespace weft::dist
