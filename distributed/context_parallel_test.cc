// Context parallelism on ranks of a world, also with heads split over another mesh dimension. One captured graph serves
// all ranks; the tests count its collectives and compare its results with the whole call.
#include "ops/attention/context_parallel.h"

#include <map>

#include "compiler/exec/compile.h"
#include "distributed/launch/world.h"
#include "framework/dispatch/capture.h"
#include "framework/dispatch/interpreter.h"
#include "ops/attention/sequence_layout.h"
#include "ops/attention/testing/shard_cases.h"
#include "ops/core/collectives/collective.h"

namespace weft::dist {
namespace {

using testing::Assembled;
using testing::head_tail_layout;
using testing::shard_cases;
using testing::ShardBounds;
using testing::ShardSizes;
using testing::WholeCall;

/// A rank's program, from its q, k, v and dout to out and the gradients.
TensorFn program(const WholeCall& w, int64_t c, int64_t tp, const Tensor& layout) {
  return [=, call = w.call, s = w.s](std::span<const Tensor> in) {
    ContextCall x{call.attrs, call.operands, {}, {}, layout, layout, rank_group("cp", c)};
    std::copy(in.begin(), in.begin() + 3, x.operands.begin());
    if (tp > 1)
      x.h = {.offset = dispatch(rank_coordinate_op, {}, {{"axes", std::string("tp")}}) * (s.hq / tp), .extent = s.hq};
    const ContextResult f = cp_ring(x);
    std::vector<Tensor> r = cp_ring_backward(x, f, in[3]);
    r.insert(r.begin(), f.out);
    return r;
  };
}

class Cut {
 public:
  Cut(const WholeCall& w, int64_t c, int64_t tp, const Tensor& layout)
      : w_(w),
        c_(c),
        tp_(tp),
        order_((layout.defined() ? layout : arange(w.s.sq, {.dtype = kInt64})).contiguous().to_vector<int64_t>()) {}
  std::vector<int64_t> heads(int rank, int64_t n) const { return part(rank % tp_, n / tp_, false); }
  std::vector<int64_t> rows(int rank, int64_t n) const { return part(rank / tp_, n / c_, true); }
  Tensor own(const Tensor& t, int rank) const {
    auto index = [](const std::vector<int64_t>& v) {
      return Tensor::from_vector<int64_t>(v, {static_cast<int64_t>(v.size())});
    };
    return index_select(index_select(t, 1, index(heads(rank, t.size(1)))), 2, index(rows(rank, t.size(2))))
        .contiguous();
  }
  std::vector<Tensor> arguments(int rank) const {
    return {own(w_.call.operands[0], rank), own(w_.call.operands[1], rank), own(w_.call.operands[2], rank),
            own(w_.upstream[0], rank)};
  }

 private:
  std::vector<int64_t> part(int64_t at, int64_t n, bool ordered) const {
    std::vector<int64_t> v;
    for (int64_t i = at * n; i < (at + 1) * n; ++i) v.push_back(ordered ? order_[static_cast<size_t>(i)] : i);
    return v;
  }
  const WholeCall& w_;
  int64_t c_, tp_;
  std::vector<int64_t> order_;
};

void expect_whole(const WholeCall& w, const Cut& cut, const std::vector<std::vector<Tensor>>& got,
                  const ShardBounds& b) {
  std::vector<int64_t> batch;
  for (int64_t i = 0; i < w.s.b; ++i) batch.push_back(i);
  std::vector<Tensor> in = w.call.operands;
  for (const Tensor& t :
       {w.out[0], w.out[1], w.out[2], w.upstream[0], zeros(w.out[1].shape(), {.dtype = w.out[1].dtype()})})
    in.push_back(t);
  const std::vector<Tensor> want = w.run(attention_backward_op, in);
  Assembled out(w.out[0]);
  std::vector<Assembled> grads(want.begin(), want.end());
  for (int r = 0; r < static_cast<int>(got.size()); ++r) {
    const std::vector<Tensor>& g = got[static_cast<size_t>(r)];
    ASSERT_EQ(g.size(), 1 + want.size());
    const std::vector<std::vector<int64_t>> q{batch, cut.heads(r, w.s.hq), cut.rows(r, w.s.sq)},
        k{batch, cut.heads(r, w.s.hkv), cut.rows(r, w.s.skv)};
    out.add(g[0], q), grads[0].add(g[1], q), grads[1].add(g[2], k), grads[2].add(g[3], k);
    for (size_t i = 3; i < want.size(); ++i) grads[i].add(g[1 + i], {});
  }
  EXPECT_TRUE(out.is(w.out[0], b.out));
  EXPECT_TRUE(grads[0].is(want[0], b.dq));
  for (size_t i : {1, 2}) EXPECT_TRUE(grads[i].is(want[i], b.dk)) << i;
  for (size_t i = 3; i < want.size(); ++i) EXPECT_TRUE(grads[i].is(want[i], b.table)) << i;
}

Ref<Graph> captured(const TensorFn& fn, const std::vector<Tensor>& like) {
  std::vector<TensorType> types;
  for (const Tensor& t : like) types.push_back(t.type());
  return capture_graph(fn, types);
}

std::map<std::string, int> collectives(const Graph& g) {
  std::map<std::string, int> n;
  for (int32_t id = 0; id < g.size(); ++id)
    for (const OpDef* op : collective_ops())
      if (g.node(id).op == op && op != &rank_coordinate_op) ++n[op->name];
  return n;
}

TEST(ContextParallel, OneGraphServesAllRanks) {
  using Counts = std::map<std::string, int>;
  const ShardSizes s{.hkv = 4};
  World world(Mesh({{"cp", 4}}));
  for (size_t n : {1, 6, 7, 8, 9}) {
    const testing::ShardCase c = shard_cases()[n];
    const WholeCall w(s, kFloat32, c, 21);
    for (const Tensor& layout : {Tensor(), head_tail_layout(s.sq, 4)}) {
      SCOPED_TRACE(str_cat(c.name, layout.defined() ? ", head-tail" : ""));
      const Cut cut(w, 4, 1, layout);
      const Ref<Graph> g = captured(program(w, 4, 1, layout), cut.arguments(0));
      EXPECT_EQ(collectives(*g), (Counts{{"permute_ranks", 9}}));
      std::vector<std::vector<Tensor>> got(4);
      world.run([&](int r) { got[static_cast<size_t>(r)] = interpret(*g, cut.arguments(r)); });
      expect_whole(w, cut, got, ShardBounds(s, kFloat32, std::string(c.name) == "dropout"));
    }
  }
}

TEST(ContextParallel, BesideTensorParallelHeads) {
  const ShardSizes s{.hkv = 4};
  World world(Mesh({{"cp", 2}, {"tp", 2}}));
  const Tensor layout = head_tail_layout(s.sq, 2);
  for (size_t n : {5, 7, 9}) {
    const testing::ShardCase c = shard_cases()[n];
    const WholeCall w(s, kFloat32, c, 22);
    const Cut cut(w, 2, 2, layout);
    SCOPED_TRACE(c.name);
    std::vector<std::vector<Tensor>> got(4);
    const TensorFn fn = program(w, 2, 2, layout);
    world.run([&](int r) { got[static_cast<size_t>(r)] = fn(cut.arguments(r)); });
    expect_whole(w, cut, got, ShardBounds(s, kFloat32, std::string(c.name) == "dropout"));
  }
}

TEST(ContextParallel, TablesWithoutGradients) {
  const ShardSizes s{.hkv = 4};
  World world(Mesh({{"cp", 2}, {"tp", 2}}));
  const testing::ShardCase c = shard_cases()[8];  // two tables
  for (int64_t fixed : {1, 2, 3}) {
    const WholeCall w(s, kBFloat16, c, 24, fixed);
    const Cut cut(w, 2, 2, {});
    SCOPED_TRACE(str_cat("fixed ", fixed));
    std::vector<std::vector<Tensor>> got(4);
    const TensorFn fn = program(w, 2, 2, {});
    world.run([&](int r) { got[static_cast<size_t>(r)] = fn(cut.arguments(r)); });
    expect_whole(w, cut, got, ShardBounds(s, kBFloat16, false));
  }
}

// A planned and replayed graph, with collectives started and ended separately, has the bits of the interpreter.
TEST(ContextParallel, Compiled) {
  const ShardSizes s{.hkv = 4};
  World world(Mesh({{"cp", 4}}));
  const WholeCall w(s, kFloat32, shard_cases()[7], 23);
  const Cut cut(w, 4, 1, {});
  const TensorFn fn = program(w, 4, 1, {});
  world.run([&](int r) {
    auto step = compile([&](const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& dout) {
      const Tensor in[] = {q, k, v, dout};
      return fn(in);
    });
    const std::vector<Tensor> in = cut.arguments(r), want = fn(in);
    for (int twice = 0; twice < 2; ++twice) {
      const std::vector<Tensor> got = step(in[0], in[1], in[2], in[3]);
      for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(testing::same_bits(got[i], want[i])) << i;
    }
  });
}

}  // namespace
}  // namespace weft::dist
