// Ring attention on simulated ranks (threads that exchange tensors): results and gradients of the whole call, and the
// number of exchanges.
#include "ops/attention/context_parallel.h"

#include <condition_variable>
#include <mutex>
#include <thread>

#include "ops/attention/sequence_layout.h"
#include "ops/attention/testing/shard_cases.h"

namespace weft {
namespace {

using testing::Assembled;
using testing::head_tail_layout;
using testing::Random;
using testing::shard_cases;
using testing::ShardBounds;
using testing::ShardSizes;
using testing::WholeCall;

/// The tensors that ranks exchange: each rank writes one and reads all, exchange by exchange.
class Board {
 public:
  explicit Board(int64_t ranks) : slots_(static_cast<size_t>(ranks)) {}
  std::vector<Tensor> exchange(int64_t rank, const Tensor& t) {
    std::unique_lock<std::mutex> lock(mutex_);
    slots_[static_cast<size_t>(rank)] = t.contiguous();
    if (rank == 0) ++count;
    const int64_t turn = turn_;
    if (++arrived_ == static_cast<int64_t>(slots_.size())) {
      shown_ = slots_;
      arrived_ = 0;
      ++turn_;
      all_.notify_all();
    } else {
      all_.wait(lock, [&] { return turn_ != turn; });
    }
    return shown_;
  }
  int count = 0;

 private:
  std::mutex mutex_;
  std::condition_variable all_;
  std::vector<Tensor> slots_, shown_;
  int64_t arrived_ = 0, turn_ = 0;
};

RankGroup group_of(Board& board, int64_t rank, int64_t ranks) {
  RankGroup g{.size = ranks, .rank = full({}, rank, {.dtype = kInt64})};
  g.permute = [=, &board](const Tensor& x, int64_t shift) {
    return board.exchange(rank, x)[static_cast<size_t>(((rank - shift) % ranks + ranks) % ranks)];
  };
  return g;
}

/// Runs `c` ranks with queries and keys in `layout` and compares the results; returns the number of exchanges.
int expect_whole(const WholeCall& w, int64_t c, const Tensor& layout, const ShardBounds& bounds) {
  const std::vector<Tensor>& x = w.call.operands;
  const int64_t sq = w.s.sq / c, skv = w.s.skv / c;
  const std::vector<int64_t> order =
      (layout.defined() ? layout : arange(w.s.sq, {.dtype = kInt64})).contiguous().to_vector<int64_t>();
  auto all = [](int64_t n) {
    std::vector<int64_t> v;
    for (int64_t i = 0; i < n; ++i) v.push_back(i);
    return v;
  };
  Board board(c);
  std::vector<std::vector<Tensor>> got(static_cast<size_t>(c)), grads(static_cast<size_t>(c));
  std::vector<std::thread> threads;
  for (int64_t r = 0; r < c; ++r)
    threads.emplace_back([&, r] {
      const auto own = [&](const Tensor& t, int64_t n) {
        std::vector<int64_t> at(order.begin() + r * n, order.begin() + (r + 1) * n);
        return index_select(t, 2, Tensor::from_vector<int64_t>(at, {n}));
      };
      ContextCall call{w.call.attrs, x, {}, {}, layout, layout, group_of(board, r, c)};
      call.operands[0] = own(x[0], sq), call.operands[1] = own(x[1], skv), call.operands[2] = own(x[2], skv);
      const Tensor dout = own(w.upstream[0], sq), dlse = own(w.upstream[1], sq);
      const ContextResult f = cp_ring(call);
      grads[static_cast<size_t>(r)] = cp_ring_backward(call, f, dout, dlse);
      got[static_cast<size_t>(r)] = {f.out, f.log_sum, f.max};
    });
  for (std::thread& t : threads) t.join();
  std::vector<Assembled> out(w.out.begin(), w.out.end()), back(w.back.begin(), w.back.end());
  for (int64_t r = 0; r < c; ++r) {
    const auto at = [&](int64_t n) { return std::vector<int64_t>(order.begin() + r * n, order.begin() + (r + 1) * n); };
    const std::vector<Tensor>&f = got[static_cast<size_t>(r)], &g = grads[static_cast<size_t>(r)];
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(f[i].dtype(), w.out[i].dtype());
      out[i].add(f[i], {all(w.s.b), all(w.s.hq), at(sq)});
    }
    EXPECT_EQ(g.size(), w.back.size());
    for (size_t i = 0; i < g.size(); ++i) EXPECT_EQ(g[i].dtype(), w.back[i].dtype());
    back[0].add(g[0], {all(w.s.b), all(w.s.hq), at(sq)});
    for (size_t i : {1, 2}) back[i].add(g[i], {all(w.s.b), all(w.s.hkv), at(skv)});
    for (size_t i = 3; i < g.size(); ++i) back[i].add(g[i], {});
  }
  EXPECT_TRUE(out[0].is(w.out[0], bounds.out));
  for (size_t i : {1, 2}) EXPECT_TRUE(out[i].is(w.out[i], bounds.lse)) << i;
  EXPECT_TRUE(back[0].is(w.back[0], bounds.dq));
  for (size_t i : {1, 2}) EXPECT_TRUE(back[i].is(w.back[i], bounds.dk)) << i;
  for (size_t i = 3; i < w.back.size(); ++i) EXPECT_TRUE(back[i].is(w.back[i], bounds.table)) << i;
  return board.count;
}

TEST(ContextParallel, RanksTogetherAreTheWholeInF64) {
  const ShardSizes s{.hkv = 4};
  ShardBounds bounds(s, kFloat64, true);
  bounds.out = bounds.lse = bounds.dq = bounds.dk = bounds.table = 1e-12;
  for (const testing::ShardCase& c : shard_cases()) {
    const WholeCall w(s, kFloat64, c, 11);
    for (const Tensor& layout : {Tensor(), head_tail_layout(s.sq, 4)}) {
      SCOPED_TRACE(str_cat(c.name, layout.defined() ? ", head-tail" : ""));
      expect_whole(w, 4, layout, bounds);
    }
  }
}

TEST(ContextParallel, RanksTogetherAreTheWholeInKernels) {
  const ShardSizes s;
  for (const testing::ShardCase& c : shard_cases()) {
    const WholeCall w(s, kFloat32, c, 12);
    for (int64_t ranks : {1, 2}) {
      SCOPED_TRACE(str_cat(c.name, ", ", ranks));
      const Tensor layout = ranks == 1 ? Tensor() : head_tail_layout(s.sq, ranks);
      expect_whole(w, ranks, layout, ShardBounds(s, kFloat32, std::string(c.name) == "dropout"));
    }
  }
}

TEST(ContextParallel, DocumentLayout) {
  const ShardSizes s;
  const Tensor layout = document_layout(testing::document_ids(s.sq), 4);
  const WholeCall w(s, kFloat32, shard_cases()[3], 13);
  expect_whole(w, 4, layout, ShardBounds(s, kFloat32, false));
}

// Partial results are merged in f32: a bf16 ring is as close to f64 as one bf16 call may be.
TEST(ContextParallel, RingInBFloat16SumsInF32) {
  const ShardSizes s;
  const WholeCall w(s, kBFloat16, shard_cases()[1], 14);
  expect_whole(w, 8, Tensor(), ShardBounds(s, kBFloat16, false));
}

TEST(ContextParallel, CountsOfExchanges) {
  const ShardSizes s{.hkv = 4};
  const ShardBounds bounds(s, kFloat32, false);
  const WholeCall causal(s, kFloat32, shard_cases()[1], 15), window(s, kFloat32, shard_cases()[2], 15);
  EXPECT_EQ(expect_whole(causal, 4, {}, bounds), 3 + 6);
  // A window no wider than a rank's keys: one neighbour.
  EXPECT_EQ(expect_whole(window, 4, {}, bounds), 1 + 2);
}

TEST(ContextParallel, RingSteps) {
  const ShardSizes s;
  auto steps = [&](const testing::ShardCase& c, const Tensor& layout) {
    const WholeCall w(s, kFloat32, c, 16);
    ContextCall call{
        w.call.attrs, w.call.operands, {}, {}, layout, layout, {.size = 4, .rank = full({}, 0, {.dtype = kInt64})}};
    for (size_t i = 0; i < 3; ++i) call.operands[i] = slice(call.operands[i], 2, 0, s.sq / 4);
    return internal::ring_steps(call);
  };
  using Steps = std::vector<bool>;
  EXPECT_EQ(steps(shard_cases()[1], {}), (Steps{true, true, true, true}));
  EXPECT_EQ(steps(shard_cases()[2], {}), (Steps{true, true, false, false}));
  // The second document is on ranks 0, 1 and 2.
  EXPECT_EQ(steps(shard_cases()[3], {}), (Steps{true, true, true, false}));
  EXPECT_EQ(steps(shard_cases()[1], head_tail_layout(s.sq, 4)), (Steps{true, true, true, true}));
}

}  // namespace
}  // namespace weft
