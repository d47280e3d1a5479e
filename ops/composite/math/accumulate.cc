#include "ops/composite/math/accumulate.h"

#include <algorithm>

#include "framework/autodiff/grad.h"
#include "framework/dispatch/tape.h"
#include "ops/attention/record.h"
#include "ops/composite/batch_dims.h"
#include "ops/core/creation.h"
#include "ops/core/functions/body.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"

namespace weft {
namespace {

using internal::BatchDims;
using Replaced = std::optional<std::vector<Tensor>>;

// Whether a graph, or a body in it, has random ops.
bool draws(const Graph& g) {
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    if (n.op->is(kRandom) || n.attrs.has("dropout")) return true;
    if (n.op->is(kStructural) && n.attrs.has("body") && draws(*n.attrs.get<Ref<Graph>>("body"))) return true;
  }
  return false;
}

// Gives the random ops in the body of accumulate() the words that its rows have in the whole batch.
class PartOfBatch {
 public:
  PartOfBatch(const Graph& body, size_t inputs, int64_t rows, int64_t parts)
      : parts_(parts), dims_(body, inputs, rows) {}

  /// The results of a node for part number `part`; nothing: the node stays as it is.
  Replaced operator()(const Graph& g, int32_t id, std::span<const Tensor> in, const Tensor& part) {
    const Node& n = g.node(id);
    if (n.op == &random_bits_op) return words(g, id, in, part);
    if (n.op == &random_bits_at_op) return with_own_seed(n, in, 0, part);
    if (n.op->is(kAttention)) return attention(g, id, in, part);
    if (!n.op->is(kCallsBody)) return {};
    const Graph& body = *n.attrs.get<Ref<Graph>>("body");
    if (!draws(body)) return {};
    if (n.op == &custom_grad_op) return with_own_seeds(n, body, in, part);
    // The number of the part is one more operand.
    std::vector<TensorType> types;
    for (Value v : body.inputs) types.push_back(body.type(v));
    types.push_back(part.type());
    const Ref<Graph> inside = capture_graph(
        [&](std::span<const Tensor> args) { return run(body, args.first(args.size() - 1), args.back()); }, types);
    SmallVec<const Tensor*, 8> operands = internal::pointers(in);
    operands.push_back(&part);
    return dispatch_multi(*n.op, operands, n.attrs.with("body", inside));
  }

 private:
  std::vector<Tensor> run(const Graph& body, std::span<const Tensor> args, const Tensor& part) {
    internal::BodyValues values(body);
    return values.run_all(args, [&](int32_t id) {
      values.run(id, [&](const Node& n, TensorPtrs in) {
        std::vector<Tensor> all;
        for (const Tensor* t : in) all.push_back(*t);
        Replaced other = (*this)(body, id, all, part);
        return other ? std::move(*other) : dispatch_multi(*n.op, in, n.attrs);
      });
    });
  }

  static Replaced with_own_seed(const Node& n, std::span<const Tensor> in, int seed, const Tensor& part) {
    std::vector<Tensor> own(in.begin(), in.end());
    own[static_cast<size_t>(seed)] = internal::seed_of_iteration(own[static_cast<size_t>(seed)], part);
    return dispatch_multi(*n.op, internal::pointers(own), n.attrs);
  }

  // The body keeps the user's derivative, so only its operands can change.
  static Replaced with_own_seeds(const Node& n, const Graph& body, std::span<const Tensor> in, const Tensor& part) {
    std::vector<Tensor> own(in.begin(), in.end());
    for (size_t i = 0; i < body.inputs.size(); ++i) {
      bool seed = false;
      for (int32_t id = 0; id < body.size(); ++id)
        seed |= body.node(id).op == &random_bits_op && body.node(id).inputs[0] == body.inputs[i];
      if (seed) own[i] = internal::seed_of_iteration(own[i], part);
    }
    return dispatch_multi(*n.op, internal::pointers(own), n.attrs);
  }

  Replaced words(const Graph& g, int32_t id, std::span<const Tensor> in, const Tensor& part) {
    const Node& n = g.node(id);
    const std::vector<int> dims = dims_.of(g, {id, 0});
    if (dims.empty()) return dims_.meets_batch(g, id) ? with_own_seed(n, in, 0, part) : Replaced();
    const Shape& shape = n.outputs[0].shape;
    Shape whole = shape;
    for (int d : dims) whole[d] *= parts_;
    const Shape strides = contiguous_strides(whole);
    int64_t step = 0;
    for (int d : dims) step += shape[d] * strides[d];
    const Tensor base = part * step;
    return {{dispatch(random_bits_at_op, {&in[0], &in[1], &base}, n.attrs.with("strides", strides))}};
  }

  Replaced attention(const Graph& g, int32_t id, std::span<const Tensor> in, const Tensor& part) {
    const Node& n = g.node(id);
    const internal::AttentionOperands at(n.attrs);
    if (at.dropout < 0) return {};
    std::vector<int> dims = dims_.of(g, n.inputs[0]);
    for (int d : dims_.of(g, n.inputs[1]))
      if (d == 2) dims.push_back(3);  // keys
    std::erase_if(dims, [&](int d) { return d == 3 && at.pages >= 0; });
    if (at.places >= 0 || at.pages >= 0 || dims.empty())
      return dims_.meets_batch(g, id) ? with_own_seed(n, in, at.dropout, part) : Replaced();
    Shape whole{in[0].size(0), in[0].size(1), in[0].size(2), in[1].size(2)};
    std::vector<Tensor> own(in.begin(), in.begin() + at.dropout + 2);
    for (int d = 0; d < 4; ++d) {
      const int64_t extent = whole[d];
      Tensor places = arange(extent, {.dtype = kInt64, .device = part.device()});
      if (std::find(dims.begin(), dims.end(), d) != dims.end()) {
        places = places + part * extent;
        whole[d] *= parts_;
      }
      own.push_back(places);
    }
    own.insert(own.end(), in.begin() + at.dropout + 2, in.end());
    return dispatch_multi(*n.op, internal::pointers(own), n.attrs.with("dropout_extents", whole));
  }

  const int64_t parts_;
  BatchDims dims_;
};

// The loop over the parts. `body` is the body of accumulate_op, with gradients as nodes.
std::vector<Tensor> loop_over_parts(const Body& body, const std::vector<Tensor>& stacked, bool recorded) {
  const int64_t n = stacked[0].size(0), rows = stacked[0].size(1);
  internal::LoopRules rules{.name = "accumulate", .own_seeds = false, .sums = true};
  rules.replacement = [&](const Graph& g) -> internal::BodyReplacement {
    if (!draws(g)) return nullptr;
    const auto parts = std::make_shared<PartOfBatch>(g, stacked.size(), rows, n);
    return
        [&g, parts](int32_t id, std::span<const Tensor> in, const Tensor& part) { return (*parts)(g, id, in, part); };
  };
  return internal::run_traced_loop(body, {}, stacked, n, false, recorded, rules);
}

Types infer_accumulate(const InferCall& c) {
  const Graph& body = *c.attrs.get<Ref<Graph>>("body");
  const int64_t stacked = c.attrs.i("stacked");
  WEFT_CHECK(stacked >= 1 && stacked <= static_cast<int64_t>(c.in.size()) && body.inputs.size() == c.in.size() + 1,
             "accumulate: ", c.in.size(), " operands, ", stacked, " of them stacked, for a body with ",
             body.inputs.size(), " inputs; need an operand for each input, and the number of the part");
  for (size_t i = 0; i < c.in.size(); ++i) {
    const bool part = static_cast<int64_t>(i) < stacked;
    TensorType have = c.in[i];
    WEFT_CHECK(!part || (have.shape.size() > 1 && c.in[0].shape.size() > 1 && have.shape[0] == c.in[0].shape[0] &&
                         have.shape[1] == c.in[0].shape[1]),
               "accumulate: stacked operand ", i, " is ", have, "; need [parts, rows, ...] as operand 0, ", c.in[0]);
    if (part) have.shape.erase(0);
    const TensorType& want = body.type(body.inputs[i + (part ? 0 : 1)]);
    WEFT_CHECK(want.shape == have.shape && want.dtype == have.dtype, "accumulate: operand ", i, " of the body is ",
               have, "; need ", want);
  }
  WEFT_CHECK(body.cells.empty() && body.captured.empty(), "accumulate: the body has ", body.cells.size(), " cells and ",
             body.captured.size(), " captured tensors; need operands");
  Types types;
  for (Value v : body.outputs) types.push_back(body.type(v));
  return types;
}

std::vector<Tensor> decompose_accumulate(const Attrs& attrs, std::span<const Tensor> in) {
  const auto stacked = static_cast<size_t>(attrs.i("stacked"));
  Body body{internal::expanded(attrs.get<Ref<Graph>>("body")), {in.begin() + stacked, in.end()}};
  return loop_over_parts(body, {in.begin(), in.begin() + stacked}, false);
}

Cost cost_accumulate(const Attrs& attrs, std::span<const TensorType> in, std::span<const TensorType>) {
  Cost total = internal::body_cost(*attrs.get<Ref<Graph>>("body"));
  const auto parts = static_cast<double>(in[0].shape[0]);
  total.flops *= parts, total.bytes *= parts, total.written *= parts, total.products *= parts;
  return total;
}

}  // namespace

const OpDef accumulate_op = {
    .name = "accumulate",
    .doc = "Sums the results of {body} over the parts of a batch; the first {stacked} operands are [parts, rows, ...].",
    .traits = kStructural | kNotDifferentiable,
    .num_inputs = -1,
    .num_outputs = -1,
    .infer = infer_accumulate,
    .cost = cost_accumulate,
    .decompose = decompose_accumulate,
};

std::span<const OpDef* const> accumulate_ops() {
  static const OpDef* const all[] = {&accumulate_op};
  return all;
}

std::vector<Tensor> internal::run_accumulate(int64_t n, const TensorFn& fn, const std::vector<Tensor>& batch,
                                             SourceLine line) {
  std::vector<Tensor> stacked;
  std::vector<TensorType> types;
  {
    const LineScope here(line);
    WEFT_CHECK(n >= 1, "accumulate: n is ", n, "; need 1 part or more");
    WEFT_CHECK(!batch.empty(), "accumulate: the batch has no tensors; need one or more");
    for (const Tensor& t : batch) {
      WEFT_CHECK(t.defined(), "accumulate: a tensor of the batch is undefined; need one with a value");
      WEFT_CHECK(t.dim() > 0 && t.size(0) == batch[0].size(0), "accumulate: a tensor of the batch is ", t.type(),
                 "; need ", t.dim() > 0 ? str_cat(batch[0].size(0), " rows, as the first has") : "rows in dim 0");
      WEFT_CHECK(t.size(0) % n == 0, "accumulate: a tensor of the batch is ", t.type(), "; need rows that ", n,
                 " parts divide equally");
      Shape parts = t.shape();
      parts[0] /= n;
      types.push_back({t.dtype(), t.device(), parts});
      parts.insert(0, n);
      if (n > 1) stacked.push_back(reshape(t, parts));
    }
  }
  if (n == 1) return fn(batch);
  const LineScope here(line);
  types.push_back({kInt64, batch[0].device(), Shape{}});  // the number of the part
  bool recorded = false;                                  // whether a result has a gradient
  Body body = capture_checked(
      "accumulate",
      [&](std::span<const Tensor> in) {
        std::vector<Tensor> out = fn(in.first(batch.size()));
        for (const Tensor& t : out) {
          WEFT_CHECK(t.defined(), "accumulate: the function returned an undefined tensor; need one with a value");
          WEFT_CHECK(t.dtype() != kBool, "accumulate: the function returned ", t.type(),
                     "; need numbers, which can be added");
          recorded |= t.requires_grad_enabled();
        }
        return out;
      },
      types);
  // A compiled step has one node, whose body gets the passes that precede differentiation.
  const SmallVec<const Tensor*, 8> in = pointers(stacked, body.lifted);
  const Capture* const capture = thread_state.capture;
  recorded = recorded && should_record(loop_op, in);
  if (!recorded && capture && capture->kind() == Capture::kStep && !capture->parent()) {
    const NoGrad constants;
    return dispatch_multi(accumulate_op, in, {{"body", body.graph}, {"stacked", static_cast<int64_t>(stacked.size())}});
  }
  body.graph = expanded(body.graph);
  return loop_over_parts(body, stacked, recorded);
}

}  // namespace weft
