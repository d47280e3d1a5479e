#include "distributed/replica/heal.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <optional>
#include <thread>

#include "distributed/comm/threads.h"
#include "framework/base/error.h"
#include "framework/base/testing/error_of.h"

namespace weft::dist {
namespace {

using Clock = std::chrono::steady_clock;
Work::Deadline in_a_minute() { return Clock::now() + std::chrono::minutes(1); }

// Small and empty tensors, tensors of odd sizes, and one of `large` elements.
std::vector<TensorType> types(int rank, int64_t large) {
  return {{kFloat32, Device::cpu(), {}},   {kFloat32, Device::cpu(), {3, 1 + rank}}, {kBFloat16, Device::cpu(), {0, 4}},
          {kBFloat16, Device::cpu(), {7}}, {kUInt8, Device::cpu(), {1 << 10, 5}},    {kFloat32, Device::cpu(), {large}},
          {kInt64, Device::cpu(), {1}}};
}
constexpr int64_t kSeveralBlocks = (5 << 18) + 3;

std::byte* bytes(const Tensor& t) { return static_cast<std::byte*>(t.view_for_kernel().data); }

// The state of a rank: the same for equal ranks of all donors; a joiner has another one.
std::vector<StatePart> state(int rank, uint64_t seed, int64_t large = 99) {
  std::vector<StatePart> parts;
  for (const TensorType& type : types(rank, large)) {
    StatePart p{.name = str_cat("cell", parts.size()), .layout = str_cat(type), .type = type};
    p.value = Tensor::empty(type);
    std::byte* const to = bytes(p.value);
    const uint64_t first = (seed * 31 + static_cast<uint64_t>(rank) * 7 + parts.size()) * 131;
    for (int64_t i = 0; i < type.nbytes(); ++i) to[i] = static_cast<std::byte>(first + static_cast<uint64_t>(i) * 17);
    parts.push_back(std::move(p));
  }
  return parts;
}

bool equal(const Tensor& a, const Tensor& b) {
  return a.type().nbytes() == b.type().nbytes() &&
         std::memcmp(bytes(a), bytes(b), static_cast<size_t>(a.type().nbytes())) == 0;
}

// A communicator that ends in place of the message number `at`, as if the process of its rank had died.
class MortalCommunicator final : public Communicator {
 public:
  MortalCommunicator(Ref<Communicator> inner, int at) : inner_(std::move(inner)), at_(at) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  Ref<Work> start(const CommRequest& request) override {
    if (started_++ == at_) {
      inner_->abort("the process has died");
      throw Error(Code::kUnavailable, "dead");
    }
    return inner_->start(request);
  }
  Ref<Communicator> split(int color, int key, Work::Deadline deadline) override {
    return inner_->split(color, key, deadline);
  }
  void abort(const std::string& cause) override { inner_->abort(cause); }
  void retire(bool on) override { inner_->retire(on); }
  int started() const { return started_; }

 private:
  const Ref<Communicator> inner_;
  const int at_;
  int started_ = 0;
};

struct Outcome {
  std::optional<HealedState> state;
  std::string error;
  int messages = 0;
};

constexpr const char* kRecord = "{\"step\":7}";

// The replicas of a view with `ranks` ranks each; place p dies at its message `at` in rank 0.
struct View {
  std::vector<bool> heals;
  int ranks = 1;
  int64_t large = 99;
  int dies = -1, at = -1;
};

// The state of `rank` before healing.
uint64_t seed_of(const View& v, int place) { return v.heals[place] ? 100 + static_cast<uint64_t>(place) : 5; }

// outcomes[rank][place]. Checks that no rank's old state changes.
std::vector<std::vector<Outcome>> heal_all(const View& v) {
  const int n = static_cast<int>(v.heals.size());
  std::vector<std::vector<Outcome>> all(static_cast<size_t>(v.ranks), std::vector<Outcome>(static_cast<size_t>(n)));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < v.ranks; ++rank) {
    const auto communicators = make_thread_communicators(n, "replica");
    for (int place = 0; place < n; ++place)
      threads.emplace_back([&v, &out = all[rank][place], rank, place, c = communicators[place]] {
        const bool dies = place == v.dies && rank == 0;
        const auto own = make_ref<MortalCommunicator>(c, dies ? v.at : -1);
        const std::vector<StatePart> parts = state(rank, seed_of(v, place), v.large);
        try {
          out.state = heal(*own, v.heals, parts, v.heals[place] ? "old" : kRecord, in_a_minute());
        } catch (const Error& e) {
          out.error = e.what();
        }
        out.messages = own->started();
        const std::vector<StatePart> before = state(rank, seed_of(v, place), v.large);
        for (size_t i = 0; i < parts.size(); ++i) EXPECT_TRUE(equal(parts[i].value, before[i].value));
      });
  }
  for (std::thread& t : threads) t.join();
  return all;
}

// A rank that healed has the bits and the record of the donors; a donor gets nothing.
void expect_healed(const View& v, const Outcome& o, int rank, int place) {
  ASSERT_TRUE(o.state) << o.error;
  if (!v.heals[place]) {
    EXPECT_TRUE(o.state->values.empty() && o.state->record.empty());
    return;
  }
  EXPECT_EQ(o.state->record, kRecord);
  const std::vector<StatePart> want = state(rank, 5, v.large);
  ASSERT_EQ(o.state->values.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(equal(o.state->values[i], want[i].value)) << want[i].name;
}

std::vector<View> views() {
  std::vector<View> all;
  for (int n = 2; n <= 5; ++n)
    for (unsigned joiners = 1; joiners < 1u << n; ++joiners) {
      View v;
      int64_t count = 0;
      for (int p = 0; p < n; ++p) v.heals.push_back(joiners >> p & 1), count += joiners >> p & 1;
      if (count < n && count <= 3) all.push_back(v);
    }
  return all;
}

TEST(Heal, JoinersGetTheBitsOfTheDonors) {
  for (View v : views())
    for (v.ranks = 1; v.ranks <= 2; ++v.ranks) {
      v.large = v.ranks == 1 && v.heals.size() <= 3 ? kSeveralBlocks : 99;
      const auto outcomes = heal_all(v);
      for (int rank = 0; rank < v.ranks; ++rank)
        for (size_t p = 0; p < v.heals.size(); ++p) expect_healed(v, outcomes[rank][p], rank, static_cast<int>(p));
    }
}

// Each donor sends an equal share.
TEST(Heal, SharesTheBytes) {
  const auto outcomes = heal_all({.heals = {false, false, true, false}, .large = kSeveralBlocks});
  // Facts, blocks and checksums; place 0 has the small tensors and the record besides.
  EXPECT_EQ(outcomes[0][0].messages, 1 + 1 + 5 + 1);
  EXPECT_EQ(outcomes[0][1].messages, 1 + 1 + 1);
  EXPECT_EQ(outcomes[0][3].messages, 1 + 2 + 1);
}

// If donors have states of their own, the first one gives its state.
TEST(Heal, FromTheFirstDonor) {
  const std::vector<bool> heals{true, false, false};
  const auto communicators = make_thread_communicators(3, "replica");
  std::vector<HealedState> got(3);
  std::vector<std::thread> threads;
  for (int p = 0; p < 3; ++p)
    threads.emplace_back([&, p] {
      got[p] = heal(*communicators[p], heals, state(0, static_cast<uint64_t>(p), kSeveralBlocks), str_cat("state ", p),
                    in_a_minute(), /*from_first=*/true);
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(got[0].record, "state 1");
  const std::vector<StatePart> want = state(0, 1, kSeveralBlocks);
  ASSERT_EQ(got[0].values.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(equal(got[0].values[i], want[i].value)) << want[i].name;
  EXPECT_TRUE(got[1].values.empty() && got[2].values.empty());
}

TEST(Heal, NothingMovesWithoutJoiners) {
  const auto outcomes = heal_all({.heals = {false, false}});
  for (const Outcome& o : outcomes[0]) {
    EXPECT_TRUE(o.state && o.state->values.empty());
    EXPECT_EQ(o.messages, 0);
  }
}

// A rank dies in place of each of its messages. All others end, and each of them has healed or has an error.
TEST(Heal, ARankThatDiesLeavesOldStatesOrBits) {
  int64_t healed = 0, kept = 0;
  for (View v : views()) {
    if (v.heals.size() > 4) continue;
    v.ranks = v.heals.size() == 3 ? 2 : 1;
    const auto whole = heal_all(v);
    for (v.dies = 0; v.dies < std::ssize(v.heals); ++v.dies)
      for (v.at = 0; v.at < whole[0][v.dies].messages; ++v.at) {
        const auto outcomes = heal_all(v);
        EXPECT_EQ(outcomes[0][v.dies].error, "dead");
        for (int rank = 0; rank < v.ranks; ++rank)
          for (int p = 0; p < std::ssize(v.heals); ++p) {
            const Outcome& o = outcomes[rank][p];
            if (rank > 0 || o.state) {
              expect_healed(v, o, rank, p);  // a rank has all of its bytes, or none
              healed += v.heals[p];
            } else {
              EXPECT_NE(o.error, "");
              kept += v.heals[p];
            }
          }
      }
  }
  EXPECT_GT(healed, 0);
  EXPECT_GT(kept, 100);
}

// The error of heal() in each replica, with these states and records.
std::vector<std::string> errors(const std::vector<std::vector<StatePart>>& states,
                                const std::vector<std::string>& records, const std::vector<bool>& heals) {
  const auto communicators = make_thread_communicators(static_cast<int>(states.size()), "replica");
  std::vector<std::string> text(states.size());
  std::vector<std::thread> threads;
  for (size_t p = 0; p < states.size(); ++p)
    threads.emplace_back([&, p] {
      text[p] = testing::error_of([&] { heal(*communicators[p], heals, states[p], records[p], in_a_minute()); });
    });
  for (std::thread& t : threads) t.join();
  return text;
}

TEST(Heal, ComparesFactsBeforeBytesMove) {
  const auto refused = [](const std::function<void(std::vector<StatePart>&)>& change) {
    std::vector<StatePart> joiner = state(0, 2);
    change(joiner);
    const std::vector<std::string> text =
        errors({state(0, 1), state(0, 1), joiner}, {"r", "r", ""}, {false, false, true});
    EXPECT_EQ(text[0], text[1]);
    EXPECT_EQ(text[0], text[2]);
    return text[0];
  };
  const std::string end = "; need the same model, optimiser and mesh in all replicas";
  EXPECT_EQ(
      refused([](auto& s) { s[1].name = "other"; }),
      "healing: the replica at place 2 has other of f32[3, 1], shard f32[3, 1]; the replica at place 0 has cell1 of "
      "f32[3, 1], shard f32[3, 1]" +
          end);
  EXPECT_EQ(refused([](auto& s) { s[3].type.dtype = kFloat16; }),
            "healing: the replica at place 2 has cell3 of bf16[7], shard f16[7]; the replica at place 0 has cell3 of "
            "bf16[7], shard bf16[7]" +
                end);
  EXPECT_EQ(
      refused([](auto& s) { s[3].layout = "bf16[14] as [14@fsdp]"; }),
      "healing: the replica at place 2 has cell3 of bf16[14] as [14@fsdp], shard bf16[7]; the replica at place 0 has "
      "cell3 of bf16[7], shard bf16[7]" +
          end);
  EXPECT_EQ(refused([](auto& s) { s.pop_back(); }),
            "healing: the replica at place 2 has no further tensor; the replica at place 0 has cell6 of i64[1], shard "
            "i64[1]" +
                end);
}

TEST(Heal, DonorsHaveOneRecord) {
  const auto text = errors({state(0, 1), state(0, 1), state(0, 2)}, {"step 7", "step 8", ""}, {false, false, true});
  for (const std::string& t : text)
    EXPECT_EQ(t,
              "healing: the replicas at places 0 and 1 have different states (step, position of the data or seed); "
              "need equal states");
}

// A transport that changes one bit of a large message.
class DamagingCommunicator final : public Communicator {
 public:
  explicit DamagingCommunicator(Ref<Communicator> inner) : inner_(std::move(inner)) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  Ref<Work> start(const CommRequest& request) override {
    if (request.kind != Collective::kSend || request.in.numel() < 1000 || damaged_) return inner_->start(request);
    damaged_.emplace(static_cast<const char*>(request.in.data), static_cast<size_t>(request.in.numel()));
    damaged_->at(500) ^= 1;
    CommRequest other = request;
    other.in.data = damaged_->data();
    return inner_->start(other);
  }
  Ref<Communicator> split(int color, int key, Work::Deadline deadline) override {
    return inner_->split(color, key, deadline);
  }
  void abort(const std::string& cause) override { inner_->abort(cause); }
  void retire(bool on) override { inner_->retire(on); }

 private:
  const Ref<Communicator> inner_;
  std::optional<std::string> damaged_;
};

TEST(Heal, FindsDamagedBytes) {
  const auto communicators = make_thread_communicators(2, "replica");
  std::thread donor([&] {
    DamagingCommunicator damaging(communicators[0]);
    heal(damaging, {false, true}, state(0, 1), kRecord, in_a_minute());
  });
  EXPECT_EQ(
      testing::error_of([&] {
        heal(*communicators[1], {false, true}, state(0, 2), "", in_a_minute());
      }),
      "healing: bytes of 'cell4' from the replica at place 0 arrived damaged: their checksum differs; the replica "
      "keeps its old state");
  donor.join();
}

TEST(Heal, StopsAtTheDeadline) {
  const auto communicators = make_thread_communicators(2, "replica");
  EXPECT_NE(testing::error_of([&] {
              heal(*communicators[1], {false, true}, state(0, 2), "", Clock::now() + std::chrono::milliseconds(50));
            }),
            "");
}

}  // namespace
}  // namespace weft::dist
