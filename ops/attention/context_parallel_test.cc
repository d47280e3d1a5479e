// Tests the three lowerings of context parallelism on simulated ranks (threads that exchange tensors): results and
// gradients of the whole call, and the number of exchanges.
#include "ops/attention/context_parallel.h"

#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "ops/attention/sequence_layout.h"
#include "ops/attention/testing/shard_cases.h"

namespace weft {
namespace {

using testing::Assembled;
using testing::error_of;
using testing::Random;
using testing::shard_cases;
using testing::ShardBounds;
using testing::ShardSizes;
using testing::WholeCall;

/// The tensors that ranks exchange: each rank writes one and reads all, exchange by exchange.
class Board {
 public:
  explicit Board(int64_t ranks) : slots_(static_cast<size_t>(ranks)) {}
  std::vector<Tensor> exchange(int64_t rank, const Tensor& t, const char* what) {
    std::unique_lock<std::mutex> lock(mutex_);
    slots_[static_cast<size_t>(rank)] = t.contiguous();
    if (rank == 0) ++counts[what];
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
  std::map<std::string, int> counts;

 private:
  std::mutex mutex_;
  std::condition_variable all_;
  std::vector<Tensor> slots_, shown_;
  int64_t arrived_ = 0, turn_ = 0;
};

RankGroup group_of(Board& board, int64_t rank, int64_t ranks) {
  auto part = [=](const Tensor& t, int64_t dim) {
    const int64_t n = t.size(static_cast<int>(dim)) / ranks;
    return slice(t, dim, rank * n, (rank + 1) * n);
  };
  RankGroup g{.size = ranks, .rank = full({}, rank, {.dtype = kInt64})};
  g.all_gather = [&board, rank](const Tensor& x, int64_t dim) {
    return cat(board.exchange(rank, x, "all_gather"), dim);
  };
  g.reduce_scatter = [=, &board](const Tensor& x, int64_t dim) {
    Tensor sum;
    for (const Tensor& t : board.exchange(rank, x, "reduce_scatter"))
      sum = sum.defined() ? sum + part(t, dim) : part(t, dim);
    return sum;
  };
  g.all_to_all = [=, &board](const Tensor& x, int64_t split, int64_t concat) {
    std::vector<Tensor> parts;
    for (const Tensor& t : board.exchange(rank, x, "all_to_all")) parts.push_back(part(t, split));
    return cat(parts, concat);
  };
  g.permute = [=, &board](const Tensor& x, int64_t shift) {
    return board.exchange(rank, x, "permute")[static_cast<size_t>(((rank - shift) % ranks + ranks) % ranks)];
  };
  return g;
}

enum Lowering { kAllGather, kRing, kUlysses };
constexpr const char* kNames[] = {"all-gather", "ring", "Ulysses"};

/// Runs `c` ranks with queries and keys in `layout` and compares the results; returns the counts of exchanges.
std::map<std::string, int> expect_whole(const WholeCall& w, Lowering lowering, int64_t c, const Tensor& layout,
                                        const ShardBounds& bounds) {
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
      const ContextResult f = lowering == kAllGather ? cp_all_gather(call)
                              : lowering == kRing    ? cp_ring(call)
                                                     : cp_ulysses(call, true);
      grads[static_cast<size_t>(r)] = lowering == kAllGather ? cp_all_gather_backward(call, f, dout, dlse)
                                      : lowering == kRing    ? cp_ring_backward(call, f, dout, dlse)
                                                             : cp_ulysses_backward(call, f, dout, dlse);
      got[static_cast<size_t>(r)] = {f.out, f.lse, f.max};
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
  return board.counts;
}

TEST(ContextParallel, EveryLoweringIsTheWholeInF64) {
  const ShardSizes s{.hkv = 4};
  ShardBounds bounds(s, kFloat64, true);
  bounds.out = bounds.lse = bounds.dq = bounds.dk = bounds.table = 1e-12;
  for (const testing::ShardCase& c : shard_cases()) {
    const WholeCall w(s, kFloat64, c, 11);
    for (Lowering l : {kAllGather, kRing, kUlysses})
      for (const Tensor& layout : {Tensor(), head_tail_layout(s.sq, 4)}) {
        SCOPED_TRACE(str_cat(c.name, ", ", kNames[l], layout.defined() ? ", head-tail" : ""));
        expect_whole(w, l, 4, layout, bounds);
      }
  }
}

TEST(ContextParallel, EveryLoweringIsTheWholeInKernels) {
  const ShardSizes s;
  for (const testing::ShardCase& c : shard_cases()) {
    const WholeCall w(s, kFloat32, c, 12);
    for (Lowering l : {kAllGather, kRing, kUlysses})
      for (int64_t ranks : {1, 2}) {
        SCOPED_TRACE(str_cat(c.name, ", ", kNames[l], ", ", ranks));
        const Tensor layout = ranks == 1 ? Tensor() : head_tail_layout(s.sq, ranks);
        expect_whole(w, l, ranks, layout, ShardBounds(s, kFloat32, std::string(c.name) == "dropout"));
      }
  }
}

TEST(ContextParallel, DocumentLayout) {
  const ShardSizes s;
  const Tensor layout = document_layout(testing::document_ids(s.sq), 4);
  const WholeCall w(s, kFloat32, shard_cases()[3], 13);
  for (Lowering l : {kAllGather, kRing}) {
    SCOPED_TRACE(kNames[l]);
    expect_whole(w, l, 4, layout, ShardBounds(s, kFloat32, false));
  }
}

// Partial results are merged in f32: a bf16 ring is as close to f64 as one bf16 call may be.
TEST(ContextParallel, RingInBFloat16SumsInF32) {
  const ShardSizes s;
  const WholeCall w(s, kBFloat16, shard_cases()[1], 14);
  expect_whole(w, kRing, 8, Tensor(), ShardBounds(s, kBFloat16, false));
}

TEST(ContextParallel, CountsOfExchanges) {
  using Counts = std::map<std::string, int>;
  const ShardSizes s{.hkv = 4};
  const ShardBounds bounds(s, kFloat32, false);
  const WholeCall causal(s, kFloat32, shard_cases()[1], 15), window(s, kFloat32, shard_cases()[2], 15);
  EXPECT_EQ(expect_whole(causal, kAllGather, 4, {}, bounds), (Counts{{"all_gather", 2}, {"reduce_scatter", 1}}));
  EXPECT_EQ(expect_whole(causal, kRing, 4, {}, bounds), (Counts{{"permute", 3 + 6}}));
  // Besides out, dout and the gradients: lse, max and dlse, which are requested here.
  EXPECT_EQ(expect_whole(causal, kUlysses, 4, {}, bounds), (Counts{{"all_to_all", 8 + 3}}));
  // A window no wider than a rank's keys: one neighbour.
  EXPECT_EQ(expect_whole(window, kRing, 4, {}, bounds), (Counts{{"permute", 1 + 2}}));
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

TEST(ContextParallel, UlyssesNeedsKeyHeads) {
  const ShardSizes s;
  const WholeCall w(s, kFloat32, shard_cases()[0], 17);
  ContextCall call{w.call.attrs, w.call.operands, {}, {}, {}, {}, {.size = 4, .rank = full({}, 0, {.dtype = kInt64})}};
  EXPECT_EQ(
      error_of([&] { cp_ulysses(call); }),
      "cp_ulysses: 2 key heads of a rank cannot be divided among 4 ranks; degree 2 fits, or pass keys around a ring "
      "or gather them (cp_ring, cp_all_gather)");
}

}  // namespace
}  // namespace weft
