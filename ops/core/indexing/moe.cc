#include "ops/core/indexing/moe.h"

#include "framework/dispatch/dispatch.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/index.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"
#include "ops/core/record_parts.h"
#include "ops/core/reductions/reduce.h"
#include "ops/kernels/moe.h"

namespace weft {
namespace {

using namespace internal;

DType wide_of(DType a, DType b) { return internal::wide_of(a == kFloat64 ? a : b); }

// ---- expert_order ----

Types infer_order(const InferCall& c) {
  const TensorType& experts = c.in[0];
  const int64_t num = c.attrs.i("num_experts");
  WEFT_CHECK(is_index(experts.dtype) && experts.shape.size() == 2 && experts.shape[1] >= 1,
             "expert_order: experts are ", experts, "; need i64 or i32 [T, k] with k of 1 or more");
  WEFT_CHECK(num >= 1, "expert_order: num_experts is ", num, "; need 1 or more");
  auto whole = [&](int64_t n) { return TensorType{kInt64, experts.device, Shape{n}}; };
  const TensorType rows = whole(experts.shape.numel());
  return {rows, rows, rows, whole(num), whole(saturating_add(num, 1))};
}

DimMap dims_order(const Attrs&, std::span<const TensorType> in, std::span<const TensorType> out) {
  return DimMap::parse("t? k? -> r~, r~, (t? k?), e?, o?", in, out);
}

Cost cost_order(const Attrs&, std::span<const TensorType> in, std::span<const TensorType> out) {
  return {2.0 * static_cast<double>(in[0].shape.numel()),
          bytes_of(in) + bytes_of(out) + 2 * static_cast<double>(out[2].nbytes())};
}

std::vector<Tensor> decompose_order(const Attrs& attrs, std::span<const Tensor> in) {
  const Tensor flat = reshape(in[0], {-1}), slots = argsort(flat, 0);
  const Tensor counts = histogram(flat, attrs.i("num_experts"));
  return {slots, floor_divide(slots, in[0].size(1)), argsort(slots, 0), counts, pad(cumsum(counts, 0), {1, 0})};
}

std::vector<Sample> samples_order() {
  auto sample = [](int64_t t, int64_t k, int64_t experts, DType dtype = kInt64) {
    return Sample{{{Shape{t, k}, dtype, 0, static_cast<double>(experts - 1)}}, {{"num_experts", experts}}, "", true};
  };
  std::vector<Sample> all = {sample(17, 2, 4), sample(5, 1, 33),          sample(40, 8, 9, kInt32), sample(33, 3, 1),
                             sample(0, 2, 3),  sample(3, 2, 4, kFloat32), sample(3, 2, 0),          sample(3, 2, 4)};
  all[5].error = "expert_order: experts are f32[3, 2]; need i64 or i32 [T, k]";
  all[6].error = "expert_order: num_experts is 0";
  all[7].in[0].lo = all[7].in[0].hi = 4;
  all[7].error = "expert_order: expert 4 of token 0, choice 0, is out of range; need 0 to 3";
  return all;
}

// ---- the three ops that move rows ----

/// Positions of a call's operands.
struct OperandPositions {
  int order;    // first position of slots, tokens, rows
  int weights;  // may be one past the last operand
};
constexpr OperandPositions kMoves{1, 4}, kDots{2, 5};

bool has_weights(size_t operands) { return operands > static_cast<size_t>(kMoves.weights); }

/// Checks k and the order of R rows; returns R.
int64_t check_order(const InferCall& c, int at) {
  const int64_t k = c.attrs.i("k");
  WEFT_CHECK(k >= 1, c.op.name, ": k is ", k, "; need 1 or more");
  constexpr const char* kNames[] = {"slots", "tokens", "rows"};
  for (int i = 0; i < 3; ++i) {
    const TensorType &t = c.in[at + i], &first = c.in[at];
    WEFT_CHECK(is_index(t.dtype) && t.shape.size() == 1 && t.shape == first.shape && t.shape[0] % k == 0, c.op.name,
               ": ", kNames[i], " are ", t, "; need i64 or i32 [R], all of one length, a multiple of k = ", k);
  }
  return c.in[at].shape[0];
}

void check_matrix(const InferCall& c, const char* what, const TensorType& t, int64_t rows) {
  WEFT_CHECK(is_computed_float(t.dtype) && t.shape.size() == 2 && t.shape[0] == rows, c.op.name, ": ", what, " is ", t,
             "; need f32, f64, bf16 or f16 [", rows, ", D]");
}

void check_weights(const InferCall& c, int64_t tokens, int64_t k) {
  if (!has_weights(c.in.size())) return;
  const TensorType& w = c.in[kMoves.weights];
  WEFT_CHECK(is_computed_float(w.dtype) && w.shape == (Shape{tokens, k}), c.op.name, ": weights are ", w,
             "; need floats ", Shape{tokens, k});
}

void check_operands(const InferCall& c) {
  WEFT_CHECK(c.in.size() == 4 || c.in.size() == 5, c.op.name, ": got ", c.in.size(),
             " operands; need a matrix, slots, tokens, rows and perhaps weights");
}

Types infer_dispatch(const InferCall& c) {
  check_operands(c);
  const int64_t rows = check_order(c, kMoves.order), k = c.attrs.i("k");
  check_matrix(c, "x", c.in[0], rows / k);
  check_weights(c, rows / k, k);
  return {TensorType{c.in[0].dtype, c.in[0].device, Shape{rows, c.in[0].shape[1]}}};
}

Types infer_combine(const InferCall& c) {
  check_operands(c);
  const int64_t rows = check_order(c, kMoves.order), k = c.attrs.i("k");
  check_matrix(c, "y", c.in[0], rows);
  check_weights(c, rows / k, k);
  return {TensorType{c.in[0].dtype, c.in[0].device, Shape{rows / k, c.in[0].shape[1]}}};
}

Types infer_dots(const InferCall& c) {
  const int64_t rows = check_order(c, kDots.order), k = c.attrs.i("k");
  const TensorType &y = c.in[0], &x = c.in[1];
  check_matrix(c, "y", y, rows);
  check_matrix(c, "x", x, rows / k);
  WEFT_CHECK(x.dtype == y.dtype && x.shape[1] == y.shape[1], "row_dots: y is ", y, " and x ", x,
             "; need one dtype and equal numbers of columns");
  return {TensorType{wide_of(y.dtype, x.dtype), y.device, Shape{rows / k, k}}};
}

// t and r may only be split together, by a partitioner that knows their meaning: each rank sorts the slots of its own
// tokens. Then r's parts are not parts of the whole order; slots, tokens and rows count from the rank's first token and
// row; counts and offsets are terms of a sum. So only the factor d is free.
DimMap parse_moves(const char* plain, const char* weighted, const Attrs& attrs, std::span<const TensorType> in,
                   std::span<const TensorType> out) {
  const std::pair<std::string, int64_t> sizes[] = {{"k", attrs.i("k")}};
  return DimMap::parse(has_weights(in.size()) ? weighted : plain, in, out, sizes);
}
DimMap dims_dispatch(const Attrs& attrs, std::span<const TensorType> in, std::span<const TensorType> out) {
  return parse_moves("t? d, r~, r~, (t? k?) -> r~ d", "t? d, r~, r~, (t? k?), t? k? -> r~ d", attrs, in, out);
}
DimMap dims_combine(const Attrs& attrs, std::span<const TensorType> in, std::span<const TensorType> out) {
  return parse_moves("r~ d, r~, r~, (t? k?) -> t? d", "r~ d, r~, r~, (t? k?), t? k? -> t? d", attrs, in, out);
}
DimMap dims_dots(const Attrs& attrs, std::span<const TensorType> in, std::span<const TensorType> out) {
  return parse_moves("", "r~ d, t? d, r~, r~, (t? k?) -> t? k?", attrs, in, out);
}

Cost cost_moves(const Attrs&, std::span<const TensorType> in, std::span<const TensorType> out) {
  const double points = static_cast<double>(std::max(in[0].shape.numel(), out[0].shape.numel()));
  return {has_weights(in.size()) ? 2 * points : points, bytes_of(in) + bytes_of(out)};
}

const Tensor* weights_of(std::span<const Tensor> in) { return has_weights(in.size()) ? &in[kMoves.weights] : nullptr; }

std::vector<Tensor> decompose_dispatch(const Attrs&, std::span<const Tensor> in) {
  const Tensor rows = index_select(in[0], 0, in[2]);
  const Tensor* w = weights_of(in);
  if (!w) return {rows};
  const DType wide = wide_of(rows.dtype(), w->dtype());
  const Tensor of_rows = index_select(reshape(cast(*w, wide), {-1}), 0, in[1]);
  return {cast(cast(rows, wide) * unsqueeze(of_rows, -1), rows.dtype())};
}

/// The rows of each token's slots, [T, k, D].
Tensor by_slot(const Tensor& y, const Tensor& rows, int64_t k) {
  return reshape(index_select(y, 0, rows), {rows.size(0) / k, k, y.size(1)});
}

std::vector<Tensor> decompose_combine(const Attrs& attrs, std::span<const Tensor> in) {
  const Tensor parts = by_slot(in[0], in[3], attrs.i("k"));
  const Tensor* w = weights_of(in);
  if (!w) return {attrs.i("k") == 1 ? select(parts, 1, 0) : sum(parts, 1)};
  const DType wide = wide_of(parts.dtype(), w->dtype());
  return {cast(sum(cast(parts, wide) * unsqueeze(cast(*w, wide), -1), 1), parts.dtype())};
}

std::vector<Tensor> decompose_dots(const Attrs& attrs, std::span<const Tensor> in) {
  const DType wide = wide_of(in[0].dtype(), in[1].dtype());
  const Tensor parts = cast(by_slot(in[0], in[4], attrs.i("k")), wide);
  return {sum(parts * unsqueeze(cast(in[1], wide), 1), -1)};
}

// ---- calls and derivatives ----

Tensor move(const OpDef& op, const Tensor& x, std::span<const Tensor> order, const Tensor& weights,
            const Attrs& attrs) {
  SmallVec<const Tensor*, 5> in{&x, &order[0], &order[1], &order[2]};
  if (weights.defined()) in.push_back(&weights);
  return dispatch(op, TensorPtrs(in), attrs);
}
Tensor dots(const Tensor& y, const Tensor& x, std::span<const Tensor> order, const Attrs& attrs) {
  return dispatch(row_dots_op, {&y, &x, &order[0], &order[1], &order[2]}, attrs);
}

Grads vjp_move(const VjpCall& c) {
  const bool dispatches = &c.op == &dispatch_rows_op;
  const auto order = c.in.subspan(kMoves.order, 3);
  const Tensor *w = weights_of(c.in), &g = c.grad[0], &x = c.in[0];
  Grads r(c.in.size());
  if (c.needs(0)) r[0] = move(dispatches ? combine_rows_op : dispatch_rows_op, g, order, w ? *w : Tensor(), c.attrs);
  if (w && c.needs(kMoves.weights))
    r[kMoves.weights] = cast(dispatches ? dots(g, x, order, c.attrs) : dots(x, g, order, c.attrs), w->dtype());
  return r;
}

Grads vjp_dots(const VjpCall& c) {
  const auto order = c.in.subspan(kDots.order, 3);
  Grads r(c.in.size());
  if (c.needs(0)) r[0] = move(dispatch_rows_op, c.in[1], order, c.grad[0], c.attrs);
  if (c.needs(1)) r[1] = move(combine_rows_op, c.in[0], order, c.grad[0], c.attrs);
  return r;
}

// ---- samples: the code that draws values makes slots, tokens and rows consistent ----

enum class TokenMove { dispatch, combine, dots };

std::vector<Sample> samples_of(TokenMove move) {
  auto sample = [&](int64_t t, int64_t k, int64_t d, bool weights, DType index = kInt64) {
    const int64_t rows = t * k;
    const SampleInput x{Shape{t, d}}, y{Shape{rows, d}}, order{Shape{rows}, index, 0, 0};
    Sample s{{}, {{"k", k}}, "", true};
    s.in.push_back(move == TokenMove::dispatch ? x : y);
    if (move == TokenMove::dots) s.in.push_back(x);
    for (int i = 0; i < 3; ++i) s.in.push_back(order);
    if (weights && move != TokenMove::dots) s.in.push_back({Shape{t, k}});
    return s;
  };
  auto wrong = [](Sample s, std::string error) {
    s.error = std::move(error);
    return s;
  };
  std::vector<Sample> all = {sample(7, 2, 5, true), sample(4, 3, 17, false), sample(0, 2, 3, true),
                             sample(3, 2, 0, false), sample(2, 20, 3, true, kInt32)};
  const int order = move == TokenMove::dots ? kDots.order : kMoves.order;
  Sample s = sample(4, 2, 3, true);
  s.in[static_cast<size_t>(order)].dtype = kFloat32;
  all.push_back(wrong(s, ": slots are f32[8]; need i64 or i32 [R]"));
  s = sample(4, 2, 3, true);
  s.in[static_cast<size_t>(order) + 2].shape = Shape{7};
  all.push_back(wrong(s, ": rows are i64[7]; need"));
  s = sample(4, 2, 3, true);
  s.in[0].shape = Shape{5, 3};
  all.push_back(wrong(s, move == TokenMove::dispatch ? ": x is f32[5, 3]; need" : ": y is f32[5, 3]; need"));
  s = sample(4, 2, 3, true);
  s.in.back() = move == TokenMove::dots ? s.in.back() : SampleInput{Shape{8}};
  s.attrs = {{"k", int64_t{move == TokenMove::dots ? 0 : 2}}};
  all.push_back(wrong(s, move == TokenMove::dots ? "row_dots: k is 0" : ": weights are f32[8]; need floats [4, 2]"));
  return all;
}

StridedView const* weights_of(std::span<const StridedView> in) {
  return has_weights(in.size()) ? &in[kMoves.weights] : nullptr;
}

}  // namespace

const OpDef expert_order_op = {
    .name = "expert_order",
    .doc = "Slots sorted by expert, stable, with tokens, inverse, counts and offsets.",
    .traits = kExpertRows | kIndexing | kNotDifferentiable | kMayThrow,
    .num_outputs = 5,
    .flops_per_point = 0,
    .infer = infer_order,
    .dims = dims_order,
    .cost = cost_order,
    .kernel =
        [](const KernelCall& c) { kernels::expert_order(c.in[0], c.out[0], c.out[1], c.out[2], c.out[3], c.out[4]); },
    .decompose = decompose_order,
    .samples = samples_order,
};
const OpDef dispatch_rows_op = {
    .name = "dispatch_rows",
    .doc = "Tokens' rows by expert, times their weights if given.",
    .traits = kExpertRows | kIndexing | kUnfolds | kMayThrow,
    .num_inputs = -1,
    .infer = infer_dispatch,
    .vjp = vjp_move,
    .dims = dims_dispatch,
    .cost = cost_moves,
    .kernel =
        [](const KernelCall& c) { kernels::dispatch_rows(c.in[0], c.in[1], c.in[2], weights_of(c.in), c.out[0]); },
    .decompose = decompose_dispatch,
    .samples = [] { return samples_of(TokenMove::dispatch); },
    .vjp_reads_out = 0,
    .linear = 1u | 1u << kMoves.weights,
};
const OpDef combine_rows_op = {
    .name = "combine_rows",
    .doc = "The sum of each token's rows, times their weights if given.",
    .traits = kExpertRows | kIndexing | kUnfolds | kMayThrow,
    .num_inputs = -1,
    .infer = infer_combine,
    .vjp = vjp_move,
    .dims = dims_combine,
    .cost = cost_moves,
    .kernel =
        [](const KernelCall& c) {
          kernels::combine_rows(c.in[0], c.in[3], weights_of(c.in), c.attrs.i("k"), c.out[0]);
        },
    .decompose = decompose_combine,
    .samples = [] { return samples_of(TokenMove::combine); },
    .vjp_reads_out = 0,
    .linear = 1u | 1u << kMoves.weights,
};
const OpDef row_dots_op = {
    .name = "row_dots",
    .doc = "Dot products of each token with its rows.",
    .traits = kExpertRows | kIndexing | kUnfolds | kMayThrow,
    .num_inputs = 5,
    .infer = infer_dots,
    .vjp = vjp_dots,
    .dims = dims_dots,
    .cost = cost_moves,
    .kernel = [](const KernelCall& c) { kernels::row_dots(c.in[0], c.in[1], c.in[4], c.out[0]); },
    .decompose = decompose_dots,
    .samples = [] { return samples_of(TokenMove::dots); },
    .vjp_reads_out = 0,
    .linear = 3,
};

std::span<const OpDef* const> moe_ops() {
  static const OpDef* const all[] = {&expert_order_op, &dispatch_rows_op, &combine_rows_op, &row_dots_op};
  return all;
}

ExpertOrder expert_order(const Arg& arg, int64_t num_experts) {
  const FirstOperand experts(arg, "expert_order");
  const Tensor* in[] = {&experts};
  std::vector<Tensor> r = dispatch_multi(expert_order_op, in, {{"num_experts", num_experts}}, arg.line());
  return {r[0], r[1], r[2], r[3], r[4], experts.size(1)};
}

static Tensor moved(const OpDef& op, const Arg& arg, const ExpertOrder& o, const Arg& weights) {
  const FirstOperand x(arg, op.name);
  const Tensor order[] = {o.slots, o.tokens, o.rows};
  return move(op, x, order, weights.tensor(), {{"k", o.top_k}});
}

Tensor dispatch_rows(const Arg& x, const ExpertOrder& order, const Arg& weights) {
  return moved(dispatch_rows_op, x, order, weights);
}
Tensor combine_rows(const Arg& y, const ExpertOrder& order, const Arg& weights) {
  return moved(combine_rows_op, y, order, weights);
}
Tensor row_dots(const Arg& y, const Arg& x, const ExpertOrder& o) {
  LineScope line(y.line());
  const Tensor order[] = {o.slots, o.tokens, o.rows};
  return dots(tensor_of(y, "row_dots"), tensor_of(x, "row_dots"), order, {{"k", o.top_k}});
}

}  // namespace weft
