// Records, kernels and derivatives of the collectives.
#include "ops/core/collectives/collective.h"

#include "framework/autodiff/grad.h"
#include "framework/dispatch/dispatch.h"
#include "framework/dispatch/rank/rank.h"
#include "ops/core/collectives/collective_types.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"
#include "ops/core/record_parts.h"
#include "ops/kernels/kernels.h"

namespace weft {

namespace {

using namespace internal;

// ---- kernels ----

// The counts that a request points to.
struct Counts {
  std::vector<int64_t> send, recv;
};

CommRequest ask_all_reduce(const KernelCall& c, Counts&) {
  return {.kind = Collective::kAllReduce, .op = reduce_op(c.attrs, c.op.name)};
}
CommRequest ask_all_gather(const KernelCall& c, Counts& n) {
  n.recv = sizes_of(c.attrs, "sizes");
  return {.kind = Collective::kAllGather, .out_dim = static_cast<int>(c.attrs.i("dim"))};
}
CommRequest ask_reduce_scatter(const KernelCall& c, Counts& n) {
  n.send = sizes_of(c.attrs, "sizes");
  return {.kind = Collective::kReduceScatter,
          .op = reduce_op(c.attrs, c.op.name),
          .in_dim = static_cast<int>(c.attrs.i("dim"))};
}
CommRequest ask_all_to_all(const KernelCall& c, Counts& n) {
  n.send = sizes_of(c.attrs, "split_sizes");
  n.recv = sizes_of(c.attrs, "concat_sizes");
  return {.kind = Collective::kAllToAll,
          .in_dim = static_cast<int>(c.attrs.i("split_dim")),
          .out_dim = static_cast<int>(c.attrs.i("concat_dim"))};
}
CommRequest ask_permute(const KernelCall& c, Counts&) {
  return {.kind = Collective::kPermute, .shift = static_cast<int>(c.attrs.i("shift"))};
}
CommRequest ask_broadcast(const KernelCall& c, Counts&) {
  return {.kind = Collective::kBroadcast, .peer = static_cast<int>(c.attrs.i("root"))};
}

using Ask = CommRequest (*)(const KernelCall&, Counts&);

template <Ask kAsk, bool kStart>
void run_collective(const KernelCall& c) {
  RankContext& me = RankContext::require(c.op.name);
  const std::string& axes = axes_of(c.attrs);
  if (c.attrs.has("parts")) {
    const int size = me.communicator(axes).size();
    WEFT_CHECK(c.attrs.i("parts") == size, c.op.name, ": parts is ", c.attrs.i("parts"), "; ", axes, " has ", size,
               " ranks");
  }
  Counts counts;
  CommRequest r = kAsk(c, counts);
  r.in = c.in[0];
  r.out = c.out[0];
  r.send_counts = counts.send;
  r.recv_counts = counts.recv;
  r.site = static_cast<uint64_t>(c.attrs.i("site", 0));
  if (kStart) {
    me.start(axes, r);
  } else {
    me.run(axes, r);
  }
}

std::vector<int64_t> values(const StridedView& v) {
  std::vector<int64_t> n;
  for (int64_t i = 0; i < v.shape[0]; ++i) n.push_back(v.as<int64_t>()[i * v.strides[0]]);
  return n;
}

StridedView rows(StridedView v, int64_t begin, int64_t count) {
  v.data = static_cast<char*>(v.data) + begin * v.strides[0] * itemsize(v.dtype);
  v.shape[0] = count;
  return v;
}

/// Advice if there are too many rows and the bound came from a factor.
std::string bound_advice(const Attrs& attrs, int64_t rows, int64_t bound) {
  if (!attrs.has("factor")) return "";
  const double factor = attrs.f("factor"), need = factor * static_cast<double>(rows) / static_cast<double>(bound);
  return str_cat(" by factor ", factor, "; need a factor of ", need, ", or 0 to allow every row");
}

void run_all_to_all_rows(const KernelCall& c) {
  RankContext& me = RankContext::require(c.op.name);
  const std::vector<int64_t> send = values(c.in[1]), recv = values(c.in[2]);
  const int64_t n = total(recv), bound = c.out[0].shape[0];
  WEFT_CHECK_AS(kResourceExhausted, n <= bound, "all_to_all_rows: rank ", me.rank(), " receives ", n,
                " rows; the bound is ", bound, bound_advice(c.attrs, n, bound));
  me.run(axes_of(c.attrs), {.kind = Collective::kAllToAll,
                            .in = c.in[0],
                            .out = c.out[0],
                            .send_counts = send,
                            .recv_counts = recv,
                            .site = static_cast<uint64_t>(c.attrs.i("site", 0))});
  if (n < bound) kernels::fill(rows(c.out[0], n, bound - n), 0);
}

template <bool kStart>
void run_transfer(const KernelCall& c, CommRequest r) {
  RankContext& me = RankContext::require(c.op.name);
  r.peer = static_cast<int>(c.attrs.i("peer"));
  r.site = static_cast<uint64_t>(c.attrs.i("site", 0));
  if (kStart) {
    me.start(axes_of(c.attrs), r);
  } else {
    me.run(axes_of(c.attrs), r);
  }
}

template <bool kStart>
void run_send(const KernelCall& c) {
  run_transfer<kStart>(c, {.kind = Collective::kSend, .in = c.in[0]});
  kernels::fill(c.out[0], 0);
}

template <bool kStart>
void run_recv(const KernelCall& c) {
  run_transfer<kStart>(c, {.kind = Collective::kRecv, .out = c.out[0]});
}

void run_rank_coordinate(const KernelCall& c) {
  *c.out[0].as<int64_t>() = RankContext::require(c.op.name).communicator(axes_of(c.attrs)).rank();
}

void run_wait(const KernelCall& c) {
  RankContext::require(c.op.name).finish(static_cast<uint64_t>(c.attrs.i("site")));
  if (c.out[0].data != c.in[0].data) kernels::cast_copy(c.in[0], c.out[0]);
}

bool show_same(const Attrs&, const StridedView& in, const TensorType&, Shape* strides, int64_t* offset) {
  *strides = in.strides;
  *offset = 0;
  return true;
}

// ---- derivatives ----

Tensor reduced(const Tensor& x, const Attrs& attrs, const char* op) {
  return dispatch(all_reduce_op, {&x}, {{"axes", axes_of(attrs)}, {"op", std::string(op)}});
}

Grads vjp_all_reduce(const VjpCall& c) {
  if (c.attrs.b("identity_grad", false)) return {c.grad[0]};
  const std::string& op = c.attrs.get<std::string>("op");
  if (op == "sum" || op == "avg") return {reduced(c.grad[0], c.attrs, op.c_str())};
  // Ties share the gradient evenly.
  const Tensor mine = cast(c.in[0] == c.out[0], c.grad[0].dtype());
  return {mine * reduced(c.grad[0], c.attrs, "sum") / reduced(mine, c.attrs, "sum")};
}

Grads vjp_all_gather(const VjpCall& c) {
  const int d = static_cast<int>(c.attrs.i("dim"));
  Attrs attrs = c.attrs.with("op", std::string("sum")).without("site");
  if (c.attrs.has("sizes")) attrs = attrs.with("extent", c.in[0].shape()[d]);
  return {dispatch(reduce_scatter_op, {&c.grad[0]}, attrs)};
}

Grads vjp_reduce_scatter(const VjpCall& c) {
  const std::string& op = c.attrs.get<std::string>("op");
  WEFT_CHECK_AS(kUnimplemented, op == "sum" || op == "avg", "reduce_scatter: the ", op, " has no derivative; take the ",
                op, " with all_reduce and slice");
  const Tensor g = dispatch(all_gather_op, {&c.grad[0]}, c.attrs.without("op").without("extent"));
  return {op == "sum" ? g : g / static_cast<double>(c.attrs.i("parts"))};
}

Grads vjp_all_to_all(const VjpCall& c) {
  const int64_t from = c.attrs.i("split_dim"), to = c.attrs.i("concat_dim");
  std::vector<Attrs::AttrEntry> back{
      {"axes", axes_of(c.attrs)}, {"parts", c.attrs.i("parts")}, {"split_dim", to}, {"concat_dim", from}};
  if (c.attrs.has("concat_sizes")) back.push_back({"split_sizes", c.attrs.get<std::string>("concat_sizes")});
  if (c.attrs.has("split_sizes")) back.push_back({"concat_sizes", c.attrs.get<std::string>("split_sizes")});
  if (from != to && c.attrs.has("concat_sizes")) back.push_back({"extent", c.in[0].shape()[static_cast<int>(to)]});
  return {dispatch(all_to_all_op, {&c.grad[0]}, Attrs(std::move(back)))};
}

Grads vjp_all_to_all_rows(const VjpCall& c) {
  return {dispatch(all_to_all_rows_op, {&c.grad[0], &c.in[2], &c.in[1]}, c.attrs.with("rows", c.in[0].shape()[0])),
          Tensor(), Tensor()};
}

Grads vjp_permute(const VjpCall& c) {
  return {dispatch(permute_ranks_op, {&c.grad[0]}, c.attrs.with("shift", -c.attrs.i("shift")))};
}

Grads vjp_broadcast(const VjpCall& c) {
  const Tensor me = dispatch(rank_coordinate_op, {}, with_device({{"axes", axes_of(c.attrs)}}, c.grad[0].device())),
               sum = reduced(c.grad[0], c.attrs, "sum");
  return {where(me == c.attrs.i("root"), sum, full_of(sum.type(), 0))};
}

Grads vjp_send(const VjpCall& c) {
  const Tensor like = full_of(c.in[0].type(), 0);
  return {dispatch(recv_op, {&like}, c.attrs)};
}
Grads vjp_recv(const VjpCall& c) { return {dispatch(send_op, {&c.grad[0]}, c.attrs).expand(c.in[0].shape())}; }
Grads vjp_copy_to(const VjpCall& c) { return {reduced(c.grad[0], c.attrs, "sum")}; }

// ---- samples: a world of one rank ----

Attrs attrs(std::initializer_list<Attrs::AttrEntry> more) {
  return Attrs([&] {
    std::vector<Attrs::AttrEntry> all(more);
    all.push_back({"axes", std::string("tp")});
    return all;
  }());
}
AttrValue name(const char* s) { return std::string(s); }

std::vector<Sample> samples_all_reduce() {
  std::vector<Sample> s;
  for (const char* op : {"sum", "max", "min"}) s.push_back({{{Shape{3, 5}}}, attrs({{"op", name(op)}})});
  s.push_back({{{Shape{}}}, attrs({{"op", name("sum")}, {"identity_grad", true}})});
  s.push_back({{{Shape{0, 3}}}, attrs({{"op", name("sum")}})});
  s.push_back(
      {{{Shape{4}, kFloat32}}, attrs({{"op", name("mul")}}), "all_reduce: op is 'mul'; need sum, avg, max or min"});
  s.push_back({{{Shape{4}, kInt64}}, attrs({{"op", name("avg")}}), "all_reduce: cannot take the avg of i64"});
  s.push_back({{{Shape{4}, kBool, 0, 1}}, attrs({{"op", name("sum")}}), "all_reduce: cannot take the sum of bool"});
  return s;
}

std::vector<Sample> samples_all_gather() {
  const int64_t one = 1;
  return {
      {{{Shape{3, 5}}}, attrs({{"dim", one}, {"parts", one}})},
      {{{Shape{3, 5}}}, attrs({{"dim", int64_t{0}}, {"parts", one}, {"sizes", name("3")}})},
      {{{Shape{3}}}, attrs({{"dim", one}, {"parts", one}}), "all_gather: dim is 1 of [3]; need a dim below 1"},
      {{{Shape{3}}},
       attrs({{"dim", int64_t{0}}, {"parts", int64_t{2}}, {"sizes", name("2,1")}}),
       "all_gather: dim 0 of [3] is not one of the sizes [2, 1]"},
      {{{Shape{3}}}, attrs({{"dim", int64_t{0}}, {"parts", int64_t{0}}}), "all_gather: parts is 0; need 1 or more"}};
}

std::vector<Sample> samples_reduce_scatter() {
  const int64_t one = 1, two = 2;
  return {
      {{{Shape{3, 5}}}, attrs({{"dim", one}, {"parts", one}, {"op", name("sum")}})},
      {{{Shape{3, 5}}},
       attrs({{"dim", int64_t{0}}, {"parts", one}, {"op", name("sum")}, {"sizes", name("3")}, {"extent", int64_t{3}}})},
      {{{Shape{3, 5}}},
       attrs({{"dim", one}, {"parts", two}, {"op", name("sum")}}),
       "reduce_scatter: dim 1 of [3, 5] cannot be split into 2 equal parts; need sizes and extent"},
      {{{Shape{3, 5}}},
       attrs({{"dim", one}, {"parts", two}, {"op", name("sum")}, {"sizes", name("2,2")}}),
       "need them to add up to 5"},
      {{{Shape{3, 5}}},
       attrs({{"dim", one}, {"parts", two}, {"op", name("sum")}, {"sizes", name("2;3")}}),
       "sizes: got \"2;3\""}};
}

std::vector<Sample> samples_all_to_all() {
  const int64_t zero = 0, one = 1, two = 2;
  return {{{{Shape{3, 5}}}, attrs({{"split_dim", zero}, {"concat_dim", one}, {"parts", one}})},
          {{{Shape{3, 5}}},
           attrs({{"split_dim", one},
                  {"concat_dim", one},
                  {"parts", one},
                  {"split_sizes", name("5")},
                  {"concat_sizes", name("5")}})},
          {{{Shape{3, 5}}},
           attrs({{"split_dim", zero}, {"concat_dim", zero}, {"parts", two}}),
           "all_to_all: dim 0 of [3, 5] cannot be split into 2 equal parts"}};
}

std::vector<Sample> samples_rows() {
  const SampleInput three{Shape{1}, kInt64, 3, 3};
  return {{{{Shape{4, 5}}, three, three}, attrs({{"rows", int64_t{6}}})},
          {{{Shape{3}}, three, three}, attrs({{"rows", int64_t{3}}})},
          {{{Shape{4, 5}}, three, {Shape{2}, kInt64}}, attrs({{"rows", int64_t{6}}}), "all_to_all_rows: counts are"},
          {{{Shape{4, 5}}, three, three}, attrs({{"rows", int64_t{2}}}), "receives 3 rows; the bound is 2"}};
}

std::vector<Sample> samples_permute() { return {{{{Shape{3, 5}}}, attrs({{"shift", int64_t{1}}})}}; }
std::vector<Sample> samples_broadcast() { return {{{{Shape{3, 5}}}, attrs({{"root", int64_t{0}}})}}; }
std::vector<Sample> samples_copy_to() { return {{{{Shape{3, 5}}}, attrs({})}}; }
std::vector<Sample> samples_rank_coordinate() { return {{{}, attrs({})}}; }

constexpr uint32_t kBegun = kCollective | kOrdered | kNotDifferentiable;

// The form of `op` that collective_wait completes. Passes make it, so it has no derivative and no samples.
constexpr OpDef started(OpDef op, const char* name, const char* doc, void (*kernel)(const KernelCall&)) {
  op.name = name;
  op.doc = doc;
  op.traits = kBegun | (op.traits & kSideEffect);
  op.kernel = kernel;
  op.start = nullptr;
  op.vjp = nullptr;
  op.samples = nullptr;
  op.vjp_reads_in = op.vjp_reads_out = ~0u;
  op.linear = 0;
  return op;
}

}  // namespace

constexpr OpDef all_reduce_op = {
    .name = "all_reduce",
    .doc = "The operands of all ranks along {axes} combined by {op}, on each.",
    .traits = kCollective | kOrdered,
    .infer = infer_all_reduce,
    .vjp = vjp_all_reduce,
    .dims = dims_same,
    .kernel = run_collective<ask_all_reduce, false>,
    .samples = samples_all_reduce,
    .linear = 1,
    .start = &all_reduce_start_op,
};
constexpr OpDef all_gather_op = moves({
    .name = "all_gather",
    .doc = "The operands of all ranks along {axes}, concatenated along {dim}.",
    .traits = kCollective | kOrdered,
    .infer = infer_all_gather,
    .vjp = vjp_all_gather,
    .dims = dims_of_dim,
    .kernel = run_collective<ask_all_gather, false>,
    .samples = samples_all_gather,
    .start = &all_gather_start_op,
});
constexpr OpDef reduce_scatter_op = {
    .name = "reduce_scatter",
    .doc = "This rank's part along {dim} of the operands of all ranks along {axes}, combined by {op}.",
    .traits = kCollective | kOrdered,
    .infer = infer_reduce_scatter,
    .vjp = vjp_reduce_scatter,
    .dims = dims_of_dim,
    .kernel = run_collective<ask_reduce_scatter, false>,
    .samples = samples_reduce_scatter,
    .vjp_reads_in = 0,
    .vjp_reads_out = 0,
    .linear = 1,
    .start = &reduce_scatter_start_op,
};
constexpr OpDef all_to_all_op = moves({
    .name = "all_to_all",
    .doc = "The parts of all ranks' operands along {split_dim} that are for this rank, joined along {concat_dim}.",
    .traits = kCollective | kOrdered,
    .infer = infer_all_to_all,
    .vjp = vjp_all_to_all,
    .dims = dims_all_to_all,
    .kernel = run_collective<ask_all_to_all, false>,
    .samples = samples_all_to_all,
    .start = &all_to_all_start_op,
});
const OpDef all_to_all_rows_op = {
    .name = "all_to_all_rows",
    .doc = "Rows sent to and received from each rank along {axes} by the counts; {rows} in total, unused ones zero.",
    .traits = kCollective | kOrdered,
    .num_inputs = 3,
    .flops_per_point = 0,
    .infer = infer_all_to_all_rows,
    .vjp = vjp_all_to_all_rows,
    .dims = dims_rows,
    .kernel = run_all_to_all_rows,
    .samples = samples_rows,
    .vjp_reads_in = 6,
    .vjp_reads_out = 0,
    .linear = 1,
};
constexpr OpDef permute_ranks_op = moves({
    .name = "permute_ranks",
    .doc = "The operand of the rank {shift} positions before this one in the ring along {axes}.",
    .traits = kCollective | kOrdered,
    .infer = infer_same,
    .vjp = vjp_permute,
    .dims = dims_same,
    .kernel = run_collective<ask_permute, false>,
    .samples = samples_permute,
    .start = &permute_ranks_start_op,
});
const OpDef broadcast_ranks_op = moves({
    .name = "broadcast_ranks",
    .doc = "The operand of rank {root} along {axes}.",
    .traits = kCollective | kOrdered,
    .infer = infer_same,
    .vjp = vjp_broadcast,
    .dims = dims_same,
    .kernel = run_collective<ask_broadcast, false>,
    .samples = samples_broadcast,
});
constexpr OpDef send_op = {
    .name = "send",
    .doc = "Sends the operand to rank {peer} along {axes}. The result, zero, is a receipt: its derivative receives.",
    .traits = kSideEffect | kCollective | kOrdered,
    .flops_per_point = 0,
    .infer = infer_send,
    .vjp = vjp_send,
    .dims = dims_send,
    .kernel = run_send<false>,
    .vjp_reads_in = 0,
    .vjp_reads_out = 0,
    .start = &send_start_op,
};
const OpDef recv_op = {
    .name = "recv",
    .doc = "The value that rank {peer} along {axes} sends; it has the operand's type.",
    .traits = kSideEffect | kCollective | kOrdered,
    .flops_per_point = 0,
    .infer = infer_same,
    .vjp = vjp_recv,
    .dims = dims_pointwise,
    .kernel = run_recv<false>,
    .vjp_reads_in = 0,
    .vjp_reads_out = 0,
    .start = &recv_start_op,
};
const OpDef copy_to_op = moves({
    .name = "copy_to",
    .doc =
        "The operand, equal on all ranks along {axes}, for uses that differ between ranks: their gradients are added.",
    .traits = kCollective,
    .infer = infer_same,
    .vjp = vjp_copy_to,
    .dims = dims_pointwise,
    .kernel = run_copy,
    .view = show_same,
    .samples = samples_copy_to,
});
const OpDef stage_boundary_op = moves({
    .name = "stage_boundary",
    .doc = "The operand. On a mesh with pp, a pipeline stage begins behind it.",
    .traits = kCollective,
    .infer = infer_same,
    .vjp = vjp_same,
    .dims = dims_same,
    .kernel = run_copy,
    .view = show_same,
    .samples = samples_permute,
});
const OpDef rank_coordinate_op = {
    .name = "rank_coordinate",
    .doc = "The coordinate of this rank along {axes}.",
    .traits = kCollective | kNotDifferentiable,
    .num_inputs = 0,
    .flops_per_point = 0,
    .infer = infer_rank_coordinate,
    .dims = dims_pointwise,
    .kernel = run_rank_coordinate,
    .samples = samples_rank_coordinate,
};
const OpDef all_reduce_start_op =
    started(all_reduce_op, "all_reduce_start", "Starts all_reduce; collective_wait {site} completes it.",
            run_collective<ask_all_reduce, true>);
const OpDef all_gather_start_op =
    started(all_gather_op, "all_gather_start", "Starts all_gather; collective_wait {site} completes it.",
            run_collective<ask_all_gather, true>);
const OpDef reduce_scatter_start_op =
    started(reduce_scatter_op, "reduce_scatter_start", "Starts reduce_scatter; collective_wait {site} completes it.",
            run_collective<ask_reduce_scatter, true>);
const OpDef all_to_all_start_op =
    started(all_to_all_op, "all_to_all_start", "Starts all_to_all; collective_wait {site} completes it.",
            run_collective<ask_all_to_all, true>);
const OpDef permute_ranks_start_op =
    started(permute_ranks_op, "permute_ranks_start", "Starts permute_ranks; collective_wait {site} completes it.",
            run_collective<ask_permute, true>);
const OpDef send_start_op =
    started(send_op, "send_start", "Starts send; collective_wait {site} of the receipt completes it.", run_send<true>);
const OpDef recv_start_op = {
    .name = "recv_start",
    .doc = "Starts recv of a value of {shape} and {dtype}; collective_wait {site} completes it.",
    .traits = kBegun | kSideEffect,
    .num_inputs = 0,
    .flops_per_point = 0,
    .infer = infer_recv_start,
    .dims = dims_pointwise,
    .kernel = run_recv<true>,
};
const OpDef collective_wait_op = {
    .name = "collective_wait",
    .doc =
        "Waits for the collective started at {site} and returns its result; the second operand is the collective's "
        "operand.",
    .traits = kBegun | kSameMemory,
    .num_inputs = 2,
    .flops_per_point = 0,
    .infer = infer_same,
    .dims =
        [](const Attrs&, std::span<const TensorType> in, std::span<const TensorType> out) {
          DimMap m = DimMap::pointwise(in.first(1), out);  // the other operand is not read
          DimFactors whole(in[1].shape.size());
          for (int d = 0; d < in[1].shape.size(); ++d) {
            whole[d] = {static_cast<int>(m.factors.size())};
            m.factors.push_back({str_cat("x", d), FactorKind::kWhole, in[1].shape[d]});
          }
          m.in.push_back(std::move(whole));
          return m;
        },
    .kernel = run_wait,
};

std::span<const OpDef* const> collective_ops() {
  static const OpDef* const all[] = {&all_reduce_op,
                                     &all_gather_op,
                                     &reduce_scatter_op,
                                     &all_to_all_op,
                                     &all_to_all_rows_op,
                                     &permute_ranks_op,
                                     &broadcast_ranks_op,
                                     &send_op,
                                     &recv_op,
                                     &copy_to_op,
                                     &stage_boundary_op,
                                     &rank_coordinate_op,
                                     &check_index_op,
                                     &all_reduce_start_op,
                                     &all_gather_start_op,
                                     &reduce_scatter_start_op,
                                     &all_to_all_start_op,
                                     &permute_ranks_start_op,
                                     &send_start_op,
                                     &recv_start_op,
                                     &collective_wait_op};
  return all;
}

}  // namespace weft
