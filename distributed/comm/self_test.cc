#include "distributed/comm/self.h"

#include <gtest/gtest.h>

namespace weft::dist {
namespace {

StridedView view(std::vector<float>& v) {
  return {v.data(), kFloat32, Shape{static_cast<int64_t>(v.size())}, Shape{1}};
}
const Work::Deadline kNow = std::chrono::steady_clock::now();

TEST(SelfCommunicator, CollectivesCopy) {
  auto c = make_self_communicator();
  EXPECT_EQ(c->rank(), 0);
  EXPECT_EQ(c->size(), 1);
  for (Collective kind : {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter,
                          Collective::kAllToAll, Collective::kBroadcast}) {
    std::vector<float> in{1, 2, 3}, out(3);
    auto work = c->start({.kind = kind, .in = view(in), .out = view(out)});
    EXPECT_FALSE(work->wait(kNow));
    EXPECT_TRUE(work->done());
    EXPECT_EQ(out, in);
  }
  EXPECT_FALSE(c->start({.kind = Collective::kBarrier})->wait(kNow));
}

TEST(SelfCommunicator, BadRequestsAreValues) {
  auto c = make_self_communicator();
  std::vector<float> in{1, 2, 3}, out(2);
  auto error = c->start({.kind = Collective::kAllReduce, .in = view(in), .out = view(out)})->wait(kNow);
  ASSERT_TRUE(error);
  EXPECT_NE(std::string(error->what()).find("expects"), std::string::npos);
  EXPECT_TRUE(c->start({.kind = Collective::kSend, .in = view(in), .out = view(in)})->wait(kNow));
}

TEST(SelfCommunicator, AbortReachesLaterWorkOfThisWorldOnly) {
  auto c = make_self_communicator();
  auto sub = c->split(0, 0, kNow);
  EXPECT_FALSE(c->split(-1, 0, kNow));
  c->abort("rank 3 died");
  auto error = c->start({.kind = Collective::kBarrier})->wait(kNow);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), Code::kAborted);
  EXPECT_NE(std::string(error->what()).find("rank 3 died"), std::string::npos);
  EXPECT_FALSE(sub->start({.kind = Collective::kBarrier})->wait(kNow));
}

TEST(SelfCommunicator, AloneIsARank) {
  EXPECT_EQ(RankContext::current(), nullptr);
  auto alone = make_alone();
  ScopedRank scope(*alone);
  EXPECT_EQ(RankContext::current(), alone.get());
  EXPECT_EQ(alone->size(), 1);
  EXPECT_EQ(alone->communicator("tp").size(), 1);
}

}  // namespace
}  // namespace weft::dist
