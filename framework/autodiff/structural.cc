// Records of the structural ops of differentiation.
#include "framework/autodiff/grad.h"
#include "framework/dispatch/dispatch.h"
#include "framework/dispatch/interpreter.h"
#include "framework/dispatch/tape.h"

namespace weft {
namespace {

Types first_type(const InferCall& c) {
  WEFT_CHECK(!c.in.empty(), c.op.name, ": needs an operand");
  return {c.in[0]};
}

bool same_memory(const Attrs&, const StridedView& in, const TensorType&, Shape* strides, int64_t* offset) {
  *strides = in.strides;
  *offset = 0;
  return true;
}

DimMap identity_dims(const Attrs&, std::span<const TensorType> in, std::span<const TensorType> out) {
  return DimMap::pointwise(in.subspan(0, 1), out);
}

Cost no_cost(const Attrs&, std::span<const TensorType>, std::span<const TensorType>) { return {}; }

Types infer_grad(const InferCall& c) {
  bool seeded = c.attrs.b("seeded");
  size_t first = seeded ? 2 : 1;
  WEFT_CHECK(c.in.size() >= first, "grad: needs a loss");
  WEFT_CHECK(is_floating(c.in[0].dtype), "grad: the loss is ", c.in[0], "; need a floating-point type");
  WEFT_CHECK(seeded || c.in[0].shape.numel() == 1, "grad: the loss is ", c.in[0],
             "; need one element, or give options.grad_output");
  Types t;
  for (size_t i = first; i < c.in.size(); ++i) t.push_back(c.in[i]);
  return t;
}

Types infer_body(const InferCall& c) {
  const Graph& body = *c.attrs.get<Ref<Graph>>("body");
  WEFT_CHECK(body.inputs.size() == c.in.size(), c.op.name, ": body takes ", body.inputs.size(), " operands; got ",
             c.in.size());
  for (size_t i = 0; i < c.in.size(); ++i) {
    const TensorType& want = body.type(body.inputs[i]);
    WEFT_CHECK(want.shape == c.in[i].shape && want.dtype == c.in[i].dtype, c.op.name, ": operand ", i, " is ", c.in[i],
               "; body needs ", want);
  }
  Types t;
  for (Value v : body.outputs) t.push_back(body.type(v));
  return t;
}

std::vector<Tensor> run_body(const Attrs& attrs, std::span<const Tensor> in) {
  return interpret(*attrs.get<Ref<Graph>>("body"), in);
}

std::vector<Tensor> run_grad(const Attrs& attrs, std::span<const Tensor> in) {
  GradOptions options;
  size_t first = 1;
  if (attrs.b("seeded")) options.grad_output = in[first++];
  options.create_graph = grad_enabled();
  const std::vector<Tensor> wrt(in.begin() + first, in.end());
  // Its operands were checked when the node was captured.
  if (Capture* capture = internal::thread_state.capture) return internal::captured_grad(*capture, in[0], wrt, options);
  return grad(in[0], wrt, options);
}

Grads vjp_barrier(const VjpCall& c) {
  Grads g(c.in.size());
  g[0] = c.grad[0];
  return g;
}

// Recomputes the body from its operands and differentiates that copy. A barrier delays the copy until the gradients
// exist.
Grads vjp_checkpoint(const VjpCall& c) {
  const bool traced = is_capturing(), again = traced || grad_enabled();
  EnableGrad record;
  std::vector<Tensor> in;
  for (const Tensor& t : c.in) {
    if (!traced) {
      // A separate tape. It links to the operands' tape only if this derivative itself must be differentiable.
      const Tensor own = again ? dispatch(barrier_op, {&t}) : t.detach();
      in.push_back(is_floating(t.dtype()) ? own.requires_grad() : own);
      continue;
    }
    SmallVec<const Tensor*, 4> operands;
    operands.push_back(&t);
    for (const Tensor& g : c.grad)
      if (g.defined()) operands.push_back(&g);
    in.push_back(dispatch(barrier_op, TensorPtrs(operands)));
  }
  std::vector<Tensor> out = interpret(*c.attrs.get<Ref<Graph>>("body"), in);
  Grads result(c.in.size());
  std::vector<Tensor> wrt;
  std::vector<int> where;
  for (size_t i = 0; i < in.size(); ++i) {
    if (!c.needs(static_cast<int>(i)) || !is_floating(in[i].dtype())) continue;
    wrt.push_back(in[i]);
    where.push_back(static_cast<int>(i));
  }
  for (size_t o = 0; o < out.size(); ++o) {
    if (!c.grad[o].defined() || !is_floating(out[o].dtype())) continue;
    if (!traced && !out[o].requires_grad_enabled()) continue;
    std::vector<Tensor> g = grad(out[o], wrt, {.create_graph = again, .grad_output = c.grad[o]});
    for (size_t k = 0; k < g.size(); ++k) {
      Tensor& slot = result[where[k]];
      slot = slot.defined() ? internal::accumulate(slot, g[k]) : g[k];
    }
  }
  return result;
}

Grads vjp_custom(const VjpCall& c) {
  const Graph& backward = *c.attrs.get<Ref<Graph>>("backward");
  const Graph& body = *c.attrs.get<Ref<Graph>>("body");
  const int64_t own = c.attrs.i("inputs");
  // backward's operands: (own inputs, outputs, grad_outputs, tensors that it closes over).
  std::vector<Tensor> args(c.in.begin(), c.in.begin() + own);
  for (const Tensor& t : c.out) args.push_back(t);
  for (size_t i = 0; i < c.out.size(); ++i)
    args.push_back(c.grad[i].defined() ? c.grad[i] : internal::full_of(c.out[i].type(), 0));
  for (size_t i = body.inputs.size() - c.attrs.i("backward_lifted"); i < body.inputs.size(); ++i)
    args.push_back(c.in[i]);
  std::vector<Tensor> g = interpret(backward, args);
  Grads result(c.in.size());
  for (int64_t i = 0, k = 0; i < own; ++i)
    if (c.attrs.ints("defined")[0] >> i & 1) result[i] = g[k++];
  return result;
}

}  // namespace

const OpDef grad_op = {
    .name = "grad",
    .doc = "Gradients of operand 0 with respect to the others.",
    .traits = kStructural | kReadsTape,
    .num_inputs = -1,
    .num_outputs = -1,
    .infer = infer_grad,
    .cost = no_cost,
    .decompose = run_grad,
};
const OpDef barrier_op = {
    .name = "barrier",
    .doc = "Operand 0, available only after the other operands.",
    .traits = kStructural | kView | kTapeStart,
    .num_inputs = -1,
    .infer = first_type,
    .vjp = vjp_barrier,
    .dims = identity_dims,
    .cost = no_cost,
    .view = same_memory,
    .vjp_reads_in = 0,
    .vjp_reads_out = 0,
    .linear = 1,
};
const OpDef stop_gradient_op = {
    .name = "stop_gradient",
    .doc = "The operand, through which no gradient flows.",
    .traits = kStructural | kView | kNotDifferentiable,
    .placing = Placing::kSame,
    .infer = first_type,
    .dims = identity_dims,
    .cost = no_cost,
    .view = same_memory,
    .linear = 1,
};
const OpDef checkpoint_op = {
    .name = "checkpoint",
    .doc = "A body whose intermediate values are recomputed in backward.",
    .traits = kStructural | kCallsBody,
    .num_inputs = -1,
    .num_outputs = -1,
    .infer = infer_body,
    .vjp = vjp_checkpoint,
    .cost = no_cost,
    .decompose = run_body,
    .vjp_reads_out = 0,
};
const OpDef custom_grad_op = {
    .name = "custom_grad",
    .doc = "A body with the user's own derivative.",
    .traits = kStructural | kCallsBody,
    .num_inputs = -1,
    .num_outputs = -1,
    .infer = infer_body,
    .vjp = vjp_custom,
    .cost = no_cost,
    .decompose = run_body,
};

std::span<const OpDef* const> autodiff_ops() {
  static const OpDef* const all[] = {&grad_op, &barrier_op, &stop_gradient_op, &checkpoint_op, &custom_grad_op};
  return all;
}

// The types of the operands of a call of `op`.
static std::vector<TensorType> types_of(const std::vector<Tensor>& inputs, const char* op) {
  std::vector<TensorType> types;
  for (const Tensor& t : inputs) {
    WEFT_CHECK_AS(kFailedPrecondition, t.defined(), op, ": operand ", types.size(),
                  " is an undefined tensor; need one with a value");
    types.push_back(t.type());
  }
  return types;
}

// fn with a check of its results. `line` is the line of the check; the ops of fn have their own lines.
static TensorFn checked_results(const TensorFn& fn, const char* op, SourceLine line) {
  return [&fn, op, line](std::span<const Tensor> in) {
    std::vector<Tensor> out = fn(in);
    internal::LineScope here(line);
    for (size_t i = 0; i < out.size(); ++i)
      WEFT_CHECK_AS(kFailedPrecondition, out[i].defined(), op, ": result ", i,
                    " of the function is an undefined tensor; need one with a value");
    return out;
  };
}

std::vector<Tensor> checkpoint_n(const TensorFn& fn, const std::vector<Tensor>& inputs, SourceLine line) {
  std::vector<TensorType> types;
  {
    internal::LineScope here(line);
    types = types_of(inputs, "checkpoint");
  }
  Body body = capture_body(checked_results(fn, "checkpoint", line), types);
  return dispatch_multi(checkpoint_op, internal::pointers(inputs, body.lifted), {{"body", body.graph}}, line);
}

std::vector<Tensor> CustomGrad::operator()(const std::vector<Tensor>& inputs) const {
  std::vector<TensorType> types, backward_types;
  {
    internal::LineScope here(line_);
    WEFT_CHECK(inputs.size() <= 63, "custom_grad: got ", inputs.size(), " operands; need at most 63");
    types = types_of(inputs, "custom_grad");
  }
  Body body = capture_body(checked_results(fn_, "custom_grad", line_), types);
  backward_types = types;
  for (int twice = 0; twice < 2; ++twice)
    for (Value v : body.graph->outputs) backward_types.push_back(body.graph->type(v));
  const size_t n = inputs.size(), m = body.graph->outputs.size();
  int64_t defined = 0;
  const Autocast off(std::nullopt);
  Body backward = capture_body(
      [&](std::span<const Tensor> a) {
        std::vector<Tensor> g = backward_(a.subspan(0, n), a.subspan(n, m), a.subspan(n + m, m)), kept;
        internal::LineScope here(line_);
        WEFT_CHECK(g.size() == n, "custom_grad: backward returned ", g.size(), " gradients; need ", n,
                   ", one per input");
        for (size_t i = 0; i < n; ++i) {
          if (!g[i].defined()) continue;
          WEFT_CHECK(g[i].shape() == types[i].shape, "custom_grad: the gradient of input ", i, " has shape ",
                     g[i].shape(), "; need ", types[i].shape);
          WEFT_CHECK(is_floating(g[i].dtype()) || !is_floating(types[i].dtype), "custom_grad: the gradient of input ",
                     i, " is ", g[i].type(), "; need a floating-point dtype like the input, ", types[i]);
          defined |= int64_t{1} << i;
          kept.push_back(g[i].to(types[i].dtype));
        }
        return kept;
      },
      backward_types);
  // The tensors that backward closes over become further, unused inputs of the body, so that the node owns all it
  // needs.
  auto whole = make_ref<Graph>(*body.graph);
  for (const Tensor& t : backward.lifted) whole->add_input(t.type());
  return dispatch_multi(custom_grad_op, internal::pointers(inputs, body.lifted, backward.lifted),
                        {{"body", whole},
                         {"backward", backward.graph},
                         {"inputs", static_cast<int64_t>(n)},
                         {"backward_lifted", static_cast<int64_t>(backward.lifted.size())},
                         {"defined", Shape{defined}}},
                        line_);
}

Tensor CustomGrad::only(std::vector<Tensor> results) const {
  internal::LineScope here(line_);
  WEFT_CHECK(results.size() == 1, "custom_grad: the function has ", results.size(),
             " results; need one, or the call with a vector of operands");
  return std::move(results[0]);
}

CustomGrad custom_grad(std::function<Tensor(Tensor)> fn, std::function<Tensor(Tensor, Tensor, Tensor)> backward,
                       SourceLine line) {
  return {[fn](std::span<const Tensor> in) { return std::vector<Tensor>{fn(in[0])}; },
          [backward](std::span<const Tensor> in, std::span<const Tensor> out, std::span<const Tensor> g) {
            return std::vector<Tensor>{backward(in[0], out[0], g[0])};
          },
          line};
}

Tensor Tensor::requires_grad(bool on, std::source_location loc) const {
  internal::LineScope line(loc);
  if (!on) return detach();
  WEFT_CHECK(is_floating(dtype()), "requires_grad: a tensor of ", dtype(),
             " has no gradient; need a floating-point dtype");
  if (get().grad) return *this;
  // Returns a new value: results computed from this one before the call stay unrecorded.
  if (is_traced()) return internal::thread_state.capture->recorded(dispatch(barrier_op, {this}));
  return with_tape(*this, make_leaf(), 0);
}

Tensor Tensor::detach() const {
  if (is_traced()) return dispatch(stop_gradient_op, {this});
  if (!get().grad) return *this;
  auto* impl = new TensorImpl(get());
  impl->grad = {};
  return Tensor(impl);
}

}  // namespace weft
