// Damaged frames of another rank: each is refused with an error or accepted, without access outside buffers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "distributed/comm/gloo/group.h"
#include "distributed/comm/testing/support.h"
#include "framework/testing/fuzz.h"

namespace weft::dist::wire {
namespace {

struct FakeHub final : Hub {
  void send(Outgoing frame) override { sent.push_back(std::move(frame)); }
  void work(Ref<GlooGroup> group, Ref<GlooOp> op) override { tasks.emplace_back(std::move(group), std::move(op)); }
  bool poll(const std::vector<int>&) override { return false; }
  std::string ending(int, bool*) const override { return {}; }
  std::deque<Outgoing> sent;
  std::deque<std::pair<Ref<GlooGroup>, Ref<GlooOp>>> tasks;
};

// One of two ranks, with collectives of each kind of operand: inline, in chunks, with counts, between two ranks.
struct Rank {
  explicit Rank(int r) : rank(r), group(make_ref<GlooGroup>(hub, nullptr, "tp", std::vector<int>{0, 1}, r, 7)) {}
  void start() {
    static const int64_t counts[] = {3, 3};
    const CommRequest all[] = {
        {.kind = Collective::kAllReduce, .in = testing::view(small), .out = testing::view(small_out)},
        {.kind = Collective::kAllReduce, .in = testing::view(large), .out = testing::view(large_out), .site = 9},
        {.kind = Collective::kAllToAll,
         .in = testing::view(small),
         .out = testing::view(small_out),
         .send_counts = counts,
         .recv_counts = counts},
        rank ? CommRequest{.kind = Collective::kSend, .in = testing::view(large), .peer = 0}
             : CommRequest{.kind = Collective::kRecv, .out = testing::view(received), .peer = 1},
        {}};
    for (const CommRequest& r : all) {
      std::optional<Error> error;
      if (auto op = group->start(rank, r, &error)) ops.push_back(op);
    }
  }
  void receive(const FrameHeader& h, const char* payload) {
    std::unique_lock lock(hub.mutex);
    group->receive(h, payload, lock);
    lock.unlock();
    for (; !hub.tasks.empty(); hub.tasks.pop_front()) hub.tasks.front().first->work(*hub.tasks.front().second);
  }
  // The bytes of the next sent frame; empty if there is none.
  std::string next() {
    while (!hub.sent.empty()) {
      Outgoing f = std::move(hub.sent.front());
      hub.sent.pop_front();
      std::string text(sizeof f.header + f.header.bytes, '\0');
      std::memcpy(text.data(), &f.header, sizeof f.header);
      if (f.write && !f.write(text.data() + sizeof f.header)) continue;
      if (!f.write && !f.bytes.empty()) std::memcpy(text.data() + sizeof f.header, f.bytes.data(), f.bytes.size());
      return text;
    }
    return {};
  }

  const int rank;
  FakeHub hub;
  std::vector<float> small = std::vector<float>(6, 1.0f), small_out = small;
  std::vector<float> large = std::vector<float>(5000, 1.0f), large_out = large, received = large;
  std::vector<Ref<internal::Op>> ops;
  Ref<GlooGroup> group;
};

// Passes the frames in `text` to a rank.
void give(Rank& rank, const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    char buffer[sizeof(FrameHeader)] = {};
    std::memcpy(buffer, text.data() + at, std::min(sizeof buffer, text.size() - at));
    FrameHeader h = read_header(buffer);
    at = std::min(text.size(), at + sizeof h);
    const std::vector<char> payload = [&] {
      std::vector<char> p(h.bytes);  // exactly as long as the header says, so that sanitizers find reads beyond the end
      std::copy_n(text.begin() + static_cast<int64_t>(at), std::min<size_t>(h.bytes, text.size() - at), p.begin());
      return p;
    }();
    at = std::min<size_t>(text.size(), at + h.bytes);
    rank.receive(h, payload.data());
  }
}

TEST(GroupFuzz, DamagedFrames) {
  // The frames of rank 1 in a run without damage.
  Rank zero(0), one(1);
  zero.start();
  one.start();
  std::string sent;
  while (true) {
    const std::string a = zero.next(), b = one.next();
    if (a.empty() && b.empty()) break;
    if (!a.empty()) give(one, a);
    if (!b.empty()) give(zero, b);
    sent += b;
  }
  ASSERT_EQ(zero.ops.size(), 5u);
  for (const auto& op : zero.ops) EXPECT_TRUE(static_cast<const GlooOp&>(*op).done);
  EXPECT_EQ(zero.large_out[4999], 2.0f);
  EXPECT_EQ(zero.received[4999], 1.0f);
  one.group->abort("a cause");
  const std::string failure = one.next();
  weft::testing::fuzz(
      {.seeds = {sent, failure, sent + failure},
       .damage = [](std::string& s, weft::testing::FuzzRandom& r) { weft::testing::damage_bytes(s, r); },
       .read =
           [](const std::string& text) {
             Rank rank(0);
             rank.start();
             give(rank, text);
           },
       .names = "gloo",
       .inputs = 10000});
}

}  // namespace
}  // namespace weft::dist::wire
