// The record of the structural op `loop`, scan() and while_loop().
#include "ops/core/functions/loop.h"

#include "framework/autodiff/grad.h"
#include "framework/dispatch/dispatch.h"
#include "framework/dispatch/interpreter.h"
#include "framework/dispatch/state/generator.h"
#include "framework/dispatch/tape.h"
#include "framework/ir/rewrite.h"
#include "ops/core/creation.h"
#include "ops/core/functions/body.h"
#include "ops/core/functions/loop_derivative.h"
#include "ops/core/functions/may_throw.h"
#include "ops/core/indexing/index.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"
#include "ops/core/products/dot.h"

namespace weft {

using internal::pointers;

namespace {

// The parts of a loop node: numbers of operands and results.
struct LoopParts {
  explicit LoopParts(const Attrs& attrs)
      : body(*attrs.get<Ref<Graph>>("body")),
        length(attrs.i("length")),
        carries(static_cast<size_t>(attrs.i("carries"))),
        stacked(static_cast<size_t>(attrs.i("stacked"))),
        go_on(attrs.i("go_on", -1)),
        reverse(attrs.b("reverse")) {}
  size_t fixed() const { return carries + stacked; }
  size_t results() const { return body.outputs.size() - carries; }

  const Graph& body;
  const int64_t length;
  const size_t carries, stacked;
  const int64_t go_on;
  const bool reverse;
};

std::string text_of_endless(int64_t length) {
  return weft::str_cat("while_loop: the condition still holds after ", length,
                       length == 1 ? " iteration" : " iterations",
                       "; need a condition that ends, or a larger WhileOptions::max_iterations");
}

TensorType slice_type(TensorType t) {
  t.shape.erase(0);
  return t;
}

TensorType stack_type(TensorType t, int64_t length) {
  t.shape.insert(0, length);
  return t;
}

Types infer_loop(const InferCall& c) {
  const LoopParts p(c.attrs);
  WEFT_CHECK(p.length >= 0 && c.attrs.i("carries") >= 0 && c.attrs.i("stacked") >= 0 &&
                 p.body.inputs.size() == c.in.size() && p.fixed() <= c.in.size() && p.carries <= p.body.outputs.size(),
             "loop: ", c.in.size(), " operands, ", c.attrs.i("carries"), " carried and ", c.attrs.i("stacked"),
             " stacked, length ", p.length, ", for a body with ", p.body.inputs.size(), " inputs and ",
             p.body.outputs.size(), " outputs; need an operand for each input");
  WEFT_CHECK(p.body.cells.empty() && p.body.captured.empty(), "loop: the body has ", p.body.cells.size(), " cells and ",
             p.body.captured.size(), " captured tensors; need operands");
  for (size_t i = 0; i < c.in.size(); ++i) {
    const bool is_stacked = i >= p.carries && i < p.fixed();
    const TensorType& t = c.in[i];
    WEFT_CHECK(!is_stacked || (!t.shape.empty() && t.shape[0] == p.length), "loop: stacked operand ", i, " is ", t,
               "; need ", p.length, " slices");
    const TensorType have = is_stacked ? slice_type(t) : t, &want = p.body.type(p.body.inputs[i]);
    WEFT_CHECK(want.shape == have.shape && want.dtype == have.dtype, "loop: operand ", i, " of the body is ", have,
               "; need ", want);
  }
  WEFT_CHECK(p.go_on == -1 || (p.go_on >= 0 && p.go_on < static_cast<int64_t>(p.carries) &&
                               c.in[p.go_on].dtype == kBool && c.in[p.go_on].shape.empty()),
             "loop: go_on is ", p.go_on, "; need -1 or a carry that is a bool[]");
  Types types;
  for (size_t o = 0; o < p.body.outputs.size(); ++o) {
    const TensorType& t = p.body.type(p.body.outputs[o]);
    WEFT_CHECK(o >= p.carries || (t.shape == c.in[o].shape && t.dtype == c.in[o].dtype), "loop: carry ", o, " is ",
               c.in[o], " before an iteration and ", t, " after it; need one type");
    types.push_back(o < p.carries ? t : stack_type(t, p.length));
  }
  return types;
}

// The carries of a loop that must have ended: an error, when the values are known, if it has not.
void check_ended(const LoopParts& p, std::vector<Tensor>& carry) {
  const Tensor still = carry[p.go_on];
  if (still.device().type == DeviceType::kMeta) return;
  if (!still.is_traced()) {
    if (still.item<bool>()) internal::loop_goes_on(p.length);
    return;
  }
  // The look-up fails at position 1, and succeeds at 0.
  const Tensor zero = internal::look_up(index_select_op, arange(1, {.dtype = kInt64, .device = still.device()}), 0,
                                        reshape(where(still, 1, 0), {1}), text_of_endless(p.length));
  for (Tensor& t : carry) t = where(eq(reshape(zero, {}), 0), t, zeros({}, {.dtype = t.dtype(), .device = t.device()}));
}

// One iteration. In a capture its nodes keep the names of the body's nodes and their mark of backward: a mesh places
// nodes by both.
std::vector<Tensor> iterate(const Graph& body, std::span<const Tensor> args) {
  if (!is_capturing()) return interpret(body, args);
  internal::BodyValues values(body);
  return values.run_all(args, [&](int32_t id) { values.run(id); });
}

// Every iteration as nodes of its own.
std::vector<Tensor> unroll(const Attrs& attrs, std::span<const Tensor> in) {
  const LoopParts p(attrs);
  std::vector<Tensor> carry(in.begin(), in.begin() + p.carries);
  const auto has_ended = [&] {
    if (p.go_on < 0 || p.results() > 0) return false;
    const Tensor& t = carry[p.go_on];
    return !t.is_traced() && t.device().type != DeviceType::kMeta && !t.item<bool>();
  };
  std::vector<std::vector<Tensor>> results(p.results(), std::vector<Tensor>(p.length));
  for (int64_t i = 0; i < p.length && !has_ended(); ++i) {
    const int64_t t = p.reverse ? p.length - 1 - i : i;
    std::vector<Tensor> args = std::move(carry);
    for (size_t k = p.carries; k < p.fixed(); ++k) args.push_back(select(in[k], 0, t));
    args.insert(args.end(), in.begin() + p.fixed(), in.end());
    std::vector<Tensor> out = iterate(p.body, args);
    for (size_t k = 0; k < results.size(); ++k) results[k][t] = std::move(out[p.carries + k]);
    out.resize(p.carries);
    carry = std::move(out);
  }
  if (p.go_on >= 0) check_ended(p, carry);
  for (size_t k = 0; k < results.size(); ++k) {
    const TensorType t = stack_type(p.body.type(p.body.outputs[p.carries + k]), p.length);
    carry.push_back(p.length ? stack(results[k]) : zeros(t.shape, {.dtype = t.dtype, .device = t.device}));
  }
  return carry;
}

Cost cost_loop(const Attrs& attrs, std::span<const TensorType>, std::span<const TensorType>) {
  const LoopParts p(attrs);
  Cost total = internal::body_cost(p.body);
  const double times = static_cast<double>(p.length);
  total.flops *= times;
  total.bytes *= times;
  total.written *= times;
  total.products *= times;
  total.at_most |= p.go_on >= 0;
  return total;
}

Attrs loop_attrs(Ref<Graph> body, int64_t length, size_t carries, size_t stacked, bool reverse) {
  return {{"body", std::move(body)},
          {"length", length},
          {"carries", static_cast<int64_t>(carries)},
          {"stacked", static_cast<int64_t>(stacked)},
          {"reverse", reverse}};
}

Grads vjp_loop(const VjpCall& c) {
  const LoopParts p(c.attrs);
  std::vector<bool> inputs, results;
  for (size_t i = 0; i < c.in.size(); ++i) inputs.push_back(c.needs(static_cast<int>(i)));
  for (size_t o = p.carries; o < c.out.size(); ++o) results.push_back(c.grad[o].defined());
  const internal::LoopDerivative d = internal::loop_derivative(p.body, static_cast<int>(p.carries),
                                                               static_cast<int>(p.stacked), std::move(inputs), results);
  // The values that the derivative reads. If the loop was recorded, its own results have all of them.
  std::vector<Tensor> again;
  if (d.forward) again = dispatch_multi(loop_op, pointers(c.in), c.attrs.with("body", d.forward));
  const std::span<const Tensor> out = d.forward ? std::span<const Tensor>(again) : c.out;
  std::vector<Tensor> parts;
  const auto stack_of = [&](const internal::LoopDerivative::Stack& s) -> const Tensor& {
    switch (s.from) {
      case internal::LoopDerivative::Stack::kResult:
        return out[p.carries + s.index];
      case internal::LoopDerivative::Stack::kOperand:
        return c.in[p.carries + s.index];
      case internal::LoopDerivative::Stack::kGradient:
        return c.grad[p.carries + s.index];
      default:
        return parts[s.index];
    }
  };
  std::vector<Tensor> in;
  for (int k : d.carry) in.push_back(c.grad[k].defined() ? c.grad[k] : internal::full_of(c.out[k].type(), 0));
  for (int k : d.sums) in.push_back(internal::full_of(c.in[p.fixed() + k].type(), 0));
  const size_t carries = in.size();
  for (const internal::LoopDerivative::Stack& s : d.stacks) in.push_back(stack_of(s));
  const size_t stacked = in.size() - carries;
  for (int k : d.shared) in.push_back(c.in[p.fixed() + k]);
  const std::vector<Tensor> back =
      dispatch_multi(loop_op, pointers(in), loop_attrs(d.backward, p.length, carries, stacked, !p.reverse));
  Grads g(c.in.size());
  size_t at = 0;
  for (int k : d.carry) g[k] = back[at++];
  for (int k : d.sums) g[p.fixed() + k] = back[at++];
  for (int k : d.slices) g[p.carries + k] = back[at++];
  parts.assign(back.begin() + static_cast<int64_t>(at), back.end());
  for (const auto& after : d.after) {
    SmallVec<const Tensor*, 2> operands;
    for (const internal::LoopDerivative::Stack& s : after.operands) operands.push_back(&stack_of(s));
    Tensor t = dispatch(*after.nodes[0].op, operands, after.nodes[0].attrs);
    for (size_t i = 1; i < after.nodes.size(); ++i) t = dispatch(*after.nodes[i].op, {&t}, after.nodes[i].attrs);
    g[p.fixed() + after.shared] = t;
  }
  return g;
}

// ---- the body of a loop from a function ----

struct LoopBody {
  Ref<Graph> graph;
  std::vector<Tensor> shared;
  bool counts = false;  // its last stacked operand is the number of the iteration
};

// The type in which results of type t are summed.
TensorType type_of_sum(TensorType t) {
  if (t.dtype == kFloat16 || t.dtype == kBFloat16) t.dtype = kFloat32;
  return t;
}

bool throws_nothing(const Node& n) {
  const bool known =
      n.inputs.empty() || n.op->is(kView) || n.op->is(kPointwise) || n.op->is(kReduction) || n.op == &dot_op;
  return known && !n.op->is(kStructural) && !internal::may_throw(n);
}

// The body without the values that are the same in each iteration: they are computed before the loop, and shared. Input
// `fixed` counts iterations, and stays only where it is read. If rules.sums is set, the first inputs are the sums so
// far.
LoopBody hoist(const Body& traced, size_t fixed, const internal::LoopRules& rules) {
  const Graph& g = *traced.graph;
  LoopBody body;
  internal::BodyValues outside(g);
  for (size_t k = 0; k < traced.lifted.size(); ++k) outside.set(g.inputs[fixed + 1 + k], traced.lifted[k]);
  const internal::BodyReplacement replacement = rules.replacement ? rules.replacement(g) : nullptr;
  body.counts = replacement || last_uses(g)[g.inputs[fixed].node] >= 0;
  const bool may_not_run = rules.go_on >= 0;
  std::vector<bool> constant(g.size());
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    if (is_argument(n)) continue;
    constant[id] = n.inputs.empty();
    const bool fixed_effect = !n.op->is(kRandom) && !n.op->is(kSideEffect) && !n.op->is(kCollective);
    // Other ops may throw, which they must not do for an iteration that does not run.
    if (may_not_run && !throws_nothing(n)) continue;
    if (fixed_effect && outside.knows_operands(n)) outside.run(id);
  }
  Capture capture(Capture::kStep);
  const EnableGrad inside(true);
  std::vector<Tensor> sums;
  if (rules.sums)
    for (Value v : g.outputs) sums.push_back(capture.add_input(type_of_sum(g.type(v))));
  internal::BodyValues in(g);
  for (size_t i = 0; i < fixed + (body.counts ? 1 : 0); ++i)
    in.set(g.inputs[i], capture.add_input(g.type(g.inputs[i])));
  const auto need = [&](Value v) {
    if (in.has(v)) return;
    const Tensor& t = outside(v);
    in.set(v, capture.add_input(t.type()));
    body.shared.push_back(t);
  };
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    if (is_argument(n) || (!constant[id] && outside.has({id, 0}))) continue;
    for (Value v : n.inputs) need(v);
    in.run(id, [&](const Node& node, TensorPtrs operands) {
      std::optional<std::vector<Tensor>> other;
      if (replacement) {
        std::vector<Tensor> all;
        for (const Tensor* t : operands) all.push_back(*t);
        other = replacement(id, all, in(g.inputs[fixed]));
      }
      return other ? std::move(*other) : dispatch_multi(*node.op, operands, node.attrs);
    });
  }
  std::vector<Tensor> out;
  for (size_t o = 0; o < g.outputs.size(); ++o) {
    const Value v = g.outputs[o];
    need(v);
    const internal::OriginScope at(g.node(v), g.node(v).backward);
    if (!rules.sums) {
      out.push_back(in(v));
      continue;
    }
    const Tensor part = cast(in(v), sums[o].dtype());
    out.push_back(dispatch(pointwise_op("add"), {&sums[o], &part}, {{kSumOfParts, true}}));
  }
  body.graph = capture.finish(out);
  return body;
}

}  // namespace

// An affine map with odd factors, so that loops in loops have their own seeds.
Tensor internal::seed_of_iteration(const Tensor& seed, const Tensor& t) {
  return add(mul(seed, int64_t{0x5851F42D4C957F2D}), mul(add(t, int64_t{1}), int64_t{0x2545F4914F6CDD1D}));
}

void internal::loop_goes_on(int64_t length) { fail(Code::kInvalidArgument, text_of_endless(length)); }

std::vector<Tensor> internal::run_loop(const std::function<Iteration(std::span<const Tensor>)>& fn,
                                       const std::vector<Tensor>& carry, const std::vector<Tensor>& stacked,
                                       const ScanOptions& options, SourceLine line, const LoopRules& rules) {
  const LineScope here(line);
  const char* const name = rules.name;
  int64_t length = options.length;
  WEFT_CHECK(length >= -1, name, ": options.length is ", length, "; need 0 or more, or -1: the number of slices");
  WEFT_CHECK(length >= 0 || !stacked.empty(), name, ": no tensor to scan over; need options.length");
  std::vector<TensorType> types;
  for (size_t i = 0; i < carry.size() + stacked.size(); ++i) {
    const bool is_stacked = i >= carry.size();
    const Tensor& t = is_stacked ? stacked[i - carry.size()] : carry[i];
    WEFT_CHECK(t.defined(), name, ": ", is_stacked ? "an operand to scan over" : "the carry",
               " is an undefined tensor; need one with a value");
    if (is_stacked) {
      WEFT_CHECK(t.dim() > 0, name, ": an operand to scan over is ", t.type(), "; need one dim or more");
      if (length < 0) length = t.size(0);
      WEFT_CHECK(t.size(0) == length, name, ": an operand to scan over is ", t.type(), "; need ", length,
                 " slices, as ", options.length < 0 ? "the others have" : "options.length says");
    }
    types.push_back(is_stacked ? slice_type(t.type()) : t.type());
  }
  const size_t fixed = types.size();
  types.push_back({kInt64, types.empty() ? Device() : types[0].device, Shape{}});  // counts iterations
  bool recorded = false;                                                           // whether a result has a gradient
  const Body traced = capture_expanded(
      name,
      [&](std::span<const Tensor> args) {
        std::optional<SeedScope> seeds;
        if (rules.own_seeds) seeds.emplace([&](const Tensor& seed) { return seed_of_iteration(seed, args[fixed]); });
        Iteration out = fn(args.first(fixed));
        WEFT_CHECK(out.carry.size() == carry.size(), name, ": the function got a carry of ", carry.size(),
                   " tensors and returned ", out.carry.size(), "; need equal numbers");
        out.carry.insert(out.carry.end(), out.results.begin(), out.results.end());
        for (const Tensor& t : out.carry) {
          WEFT_CHECK(t.defined(), name, ": the function returned an undefined tensor; need one with a value");
          WEFT_CHECK(!rules.sums || t.dtype() != kBool, name, ": the function returned ", t.type(),
                     "; need numbers, which can be added");
          recorded |= t.requires_grad_enabled();
        }
        return out.carry;
      },
      types);
  for (size_t k = 0; k < carry.size(); ++k) {
    const TensorType& t = traced.graph->type(traced.graph->outputs[k]);
    WEFT_CHECK(t.shape == types[k].shape && t.dtype == types[k].dtype, name, ": carry ", k, " is ", types[k],
               " before an iteration and ", t, " after it; need one type");
  }
  return run_traced_loop(traced, carry, stacked, length, options.reverse, recorded, rules);
}

std::vector<Tensor> internal::run_traced_loop(const Body& traced, const std::vector<Tensor>& carry,
                                              const std::vector<Tensor>& stacked, int64_t length, bool reverse,
                                              bool recorded, const LoopRules& rules) {
  std::vector<Tensor> in = carry;
  in.insert(in.end(), stacked.begin(), stacked.end());
  const size_t fixed = in.size();
  LoopBody body = hoist(traced, fixed, rules);
  size_t carries = carry.size(), slices = stacked.size();
  if (rules.sums) {
    // -0.0 plus x is x for every x.
    std::vector<Tensor> zeros;
    for (Value v : body.graph->outputs) {
      const TensorType& t = body.graph->type(v);
      zeros.push_back(full_of(t, is_floating(t.dtype) ? -0.0 : 0.0));
    }
    carries += zeros.size();
    in.insert(in.begin(), zeros.begin(), zeros.end());
  }
  if (body.counts) {
    const Device device = traced.graph->type(traced.graph->inputs[fixed]).device;
    in.push_back(arange(length, {.dtype = kInt64, .device = device}));
    ++slices;
  }
  in.insert(in.end(), body.shared.begin(), body.shared.end());
  Attrs attrs = loop_attrs(body.graph, length, carries, slices, reverse);
  if (rules.go_on >= 0) attrs = attrs.with("go_on", rules.go_on);
  if (rules.sums) attrs = attrs.with("sums", true);
  const SmallVec<const Tensor*, 8> operands = pointers(in);
  const size_t results = body.graph->outputs.size();
  // Gradients that the function computed are constants.
  const EnableGrad record(grad_enabled() && recorded);
  if (should_record(loop_op, operands)) {
    // One run of the loop computes its results and the values that the derivative reads.
    std::vector<bool> inputs, all;
    for (const Tensor& t : in) inputs.push_back(t.requires_grad_enabled());
    for (size_t o = carries; o < results; ++o)
      all.push_back(is_floating(body.graph->type(body.graph->outputs[o]).dtype));
    const LoopDerivative d =
        loop_derivative(*body.graph, static_cast<int>(carries), static_cast<int>(slices), inputs, all);
    if (d.forward) attrs = attrs.with("body", d.forward);
  }
  std::vector<Tensor> out = dispatch_multi(loop_op, operands, attrs);
  out.resize(results);
  if (rules.sums)
    for (size_t o = 0; o < out.size(); ++o) out[o] = cast(out[o], traced.graph->type(traced.graph->outputs[o]).dtype);
  return out;
}

std::vector<Tensor> internal::run_while(const std::function<Tensor(std::span<const Tensor>)>& condition,
                                        const TensorFn& fn, const std::vector<Tensor>& carry,
                                        const WhileOptions& options, SourceLine line) {
  const LineScope here(line);
  WEFT_CHECK(options.max_iterations >= 0, "while_loop: max_iterations is ", options.max_iterations, "; need 0 or more");
  for (const Tensor& t : carry)
    WEFT_CHECK(t.defined(), "while_loop: the carry is an undefined tensor; need one with a value");
  const auto goes_on = [&](std::span<const Tensor> now) {
    const Tensor go = condition(now);
    WEFT_CHECK(go.defined() && go.dtype() == kBool && go.dim() == 0, "while_loop: the condition is ",
               go.defined() ? str_cat(go.type()) : "an undefined tensor", "; need bool[]");
    return go;
  };
  std::vector<Tensor> all = carry;
  all.push_back(goes_on(carry));
  const size_t n = carry.size();
  all = run_loop(
      [&](std::span<const Tensor> args) {
        const std::span<const Tensor> now = args.first(n);
        const Tensor& go = args[n];
        // After the end, the function gets values at which it is defined: it throws nothing, and its derivative, which
        // is multiplied by 0, is finite.
        std::vector<Tensor> defined;
        for (size_t k = 0; k < n; ++k) defined.push_back(where(go, now[k], carry[k].detach()));
        Iteration out{fn(defined), {}};
        WEFT_CHECK(out.carry.size() == n, "while_loop: the function got a carry of ", n, " tensors and returned ",
                   out.carry.size(), "; need equal numbers");
        for (size_t k = 0; k < n; ++k) {
          Tensor& t = out.carry[k];
          WEFT_CHECK(t.defined() && t.shape() == now[k].shape() && t.dtype() == now[k].dtype(), "while_loop: carry ", k,
                     " is ", now[k].type(), " before an iteration and ",
                     t.defined() ? str_cat(t.type()) : "an undefined tensor", " after it; need one type");
          t = where(go, t, now[k]);
        }
        out.carry.push_back(logical_and(go, goes_on(out.carry)));
        return out;
      },
      all, {}, {.length = options.max_iterations}, line, {.name = "while_loop", .go_on = static_cast<int64_t>(n)});
  all.resize(n);
  return all;
}

const OpDef loop_op = {
    .name = "loop",
    .doc = "Runs {body} {length} times: carried values, slices of stacked operands, shared operands.",
    .traits = kStructural | kCallsBody | kRunsBody,
    .num_inputs = -1,
    .num_outputs = -1,
    .infer = infer_loop,
    .vjp = vjp_loop,
    .cost = cost_loop,
    .decompose = unroll,
};

std::span<const OpDef* const> loop_ops() {
  static const OpDef* const all[] = {&loop_op};
  return all;
}

}  // namespace weft
