// grad(): reverse mode over the eager tape, or one `grad` node under capture.
#include <algorithm>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "framework/autodiff/depends.h"
#include "framework/autodiff/grad.h"
#include "framework/dispatch/dispatch.h"
#include "framework/dispatch/tape.h"

namespace weft {
namespace {

struct Slots {
  SmallVec<Tensor, 1> grads;
  bool needed = false;
};

void accumulate_into(Tensor& slot, const Tensor& g) { slot = slot.defined() ? internal::accumulate(slot, g) : g; }

// If `of_parameters`, wrt are values of parameters, and a gradient is the sum over all values that the loss used: the
// parameter may have been set since then.
std::vector<Tensor> eager_grad(const Tensor& loss, const std::vector<Tensor>& wrt, const GradOptions& options,
                               bool of_parameters) {
  TapeNode* root = tape_node(loss);

  // All nodes below the loss, oldest first: a topological order.
  std::unordered_map<TapeNode*, Slots> slots;
  std::vector<TapeNode*> nodes, stack{root};
  slots[root];
  while (!stack.empty()) {
    TapeNode* n = stack.back();
    stack.pop_back();
    nodes.push_back(n);
    for (const Tensor& t : n->in) {
      TapeNode* up = tape_node(t);
      if (up && slots.try_emplace(up).second) stack.push_back(up);
    }
  }
  std::sort(nodes.begin(), nodes.end(), [](auto* a, auto* b) { return a->sequence < b->sequence; });
  // The operands whose gradient arrives at a node.
  std::unordered_map<const TapeNode*, std::vector<size_t>> wanted;
  std::unordered_map<uint64_t, std::vector<size_t>> variables;
  for (size_t i = 0; i < wrt.size(); ++i) {
    const TapeNode* n = tape_node(wrt[i]);
    if (of_parameters && !n->op) {
      variables[n->variable].push_back(i);
    } else {
      wanted[n].push_back(i);
    }
  }
  if (!variables.empty())
    for (const TapeNode* n : nodes)
      if (!n->op)
        if (const auto it = variables.find(n->variable); it != variables.end()) wanted.emplace(n, it->second);
  for (const auto& [n, which] : wanted)
    if (auto it = slots.find(const_cast<TapeNode*>(n)); it != slots.end()) it->second.needed = true;
  for (TapeNode* n : nodes) {
    Slots& s = slots[n];
    s.grads.resize(std::max<size_t>(n->out.size(), 1));
    for (const Tensor& t : n->in)
      if (TapeNode* up = tape_node(t)) s.needed |= slots[up].needed;
  }

  EnableGrad recording(options.create_graph);
  const Autocast off(std::nullopt);
  slots[root].grads[loss.get().index] =
      options.grad_output.defined() ? options.grad_output : internal::full_of(loss.type(), 1);
  std::vector<Tensor> result(wrt.size());
  auto collect = [&](TapeNode* n, const Slots& s) {
    const auto it = wanted.find(n);
    if (it == wanted.end()) return;
    for (size_t i : it->second)
      if (const Tensor& g = s.grads[wrt[i].get().index]; g.defined()) accumulate_into(result[i], g);
  };
  for (auto it = nodes.rbegin(); it != nodes.rend(); ++it) {
    TapeNode* n = *it;
    Slots& s = slots[n];
    if (!s.needed) continue;
    collect(n, s);
    bool any = false;
    for (const Tensor& g : s.grads) any |= g.defined();
    if (!any || !n->op) continue;
    uint64_t needed = 0;
    for (size_t i = 0; i < n->in.size(); ++i) {
      TapeNode* up = tape_node(n->in[i]);
      if (up && slots[up].needed) needed |= uint64_t{1} << std::min<size_t>(i, 63);
    }
    if (!needed) continue;
    // Results get their own links back, so that a second derivative can pass through them.
    SmallVec<Tensor, 1> out;
    for (size_t i = 0; i < n->out.size(); ++i)
      out.push_back(options.create_graph ? with_tape(n->out[i], Ref<TapeNode>(n), static_cast<int>(i)) : n->out[i]);
    Grads g = n->op->vjp({*n->op, n->attrs, n->in, out, s.grads, needed});
    WEFT_BUG_IF(g.size() != n->in.size(), n->op->name, ": vjp returned ", g.size(), " gradients");
    s.grads.clear();
    for (size_t i = 0; i < g.size(); ++i) {
      TapeNode* up = tape_node(n->in[i]);
      if (!g[i].defined() || !up || !slots[up].needed) continue;
      WEFT_BUG_IF(g[i].shape() != n->in[i].shape(), n->op->name, ": gradient ", i, " has shape ", g[i].shape(),
                  ", operand ", n->in[i].shape());
      accumulate_into(slots[up].grads[n->in[i].get().index], g[i]);
    }
  }
  for (size_t i = 0; i < wrt.size(); ++i)
    if (!result[i].defined()) result[i] = internal::full_of(wrt[i].type(), 0);
  return result;
}

// Checks the arguments of grad(), on the tape and in a capture.
void check(const Tensor& loss, const std::vector<Tensor>& wrt, const GradOptions& options) {
  for (const Tensor& t : wrt)
    WEFT_CHECK(is_floating(t.dtype()), "grad: cannot differentiate with respect to ", t.type(),
               "; need a floating-point tensor");
  WEFT_CHECK(is_floating(loss.dtype()), "grad: the loss is ", loss.type(), "; need a floating-point type");
  if (options.grad_output.defined()) {
    WEFT_CHECK(options.grad_output.shape() == loss.shape(), "grad: grad_output has shape ", options.grad_output.shape(),
               "; need the loss's ", loss.shape());
  } else {
    WEFT_CHECK(loss.numel() == 1, "grad: the loss is ", loss.type(), "; need one element, or give options.grad_output");
  }
  for (size_t i = 0; i < wrt.size(); ++i)
    WEFT_CHECK(wrt[i].requires_grad_enabled(), "grad: operand ", i, " (", wrt[i].type(),
               ") does not record; need a Parameter's value or a tensor after requires_grad(), taken outside NoGrad");
  WEFT_CHECK(loss.requires_grad_enabled(),
             "grad: the loss does not depend on anything that records; was it detached, or computed inside NoGrad, by "
             "a compiled function (call grad inside it), or from gradients without create_graph?");
}

/// The tape's node of `t`, or the cell's leaf if `t` is a cell's value in a capture.
const RefCounted* leaf_of(Capture& capture, const Tensor& t) {
  if (!t.is_traced()) return tape_node(t);
  const Graph& g = capture.graph();
  const Node& n = g.node(capture.value_of(t));
  return is_cell(n) ? g.cells[n.attrs.i("index")]->leaf.get() : nullptr;
}

// A captured function has no tape of earlier computations: their values are constants there. This is an error, because
// the same call outside the capture has other gradients.
void check_inside(Capture& capture, const Tensor& loss, const std::vector<Tensor>& wrt) {
  if (capture.kind() != Capture::kStep) return;
  std::unordered_map<const RefCounted*, size_t> leaves;
  for (size_t i = 0; i < wrt.size(); ++i)
    if (const RefCounted* leaf = leaf_of(capture, wrt[i])) leaves.emplace(leaf, i);
  std::vector<Tensor> outside = capture.from_outside();
  if (!loss.is_traced()) outside.push_back(loss);
  std::unordered_set<const TapeNode*> seen;
  for (const Tensor& used : outside) {
    std::vector<const TapeNode*> stack;
    if (const TapeNode* n = tape_node(used)) stack.push_back(n);
    while (!stack.empty()) {
      const TapeNode* n = stack.back();
      stack.pop_back();
      for (const Tensor& t : n->in) {
        const TapeNode* up = tape_node(t);
        if (!up || !seen.insert(up).second) continue;
        stack.push_back(up);
        const auto at = leaves.find(up);
        WEFT_CHECK_AS(
            kFailedPrecondition, at == leaves.end(), "grad: ", used.type(), " was computed from operand ",
            at == leaves.end() ? 0 : at->second,
            " outside the captured function and is a constant inside; need it computed inside, or detach() it");
      }
    }
  }
}

}  // namespace

std::vector<Tensor> internal::captured_grad(Capture& capture, const Tensor& loss, const std::vector<Tensor>& wrt,
                                            const GradOptions& options) {
  if (capture.differentiate) return (*capture.differentiate)(loss, wrt, options.grad_output, options.create_graph);
  SmallVec<const Tensor*, 8> in;
  in.push_back(&loss);
  if (options.grad_output.defined()) in.push_back(&options.grad_output);
  for (const Tensor& t : wrt) in.push_back(&t);
  EnableGrad recording(options.create_graph);
  std::vector<Tensor> gradients = dispatch_multi(grad_op, in, {{"seeded", options.grad_output.defined()}});
  if (options.create_graph)
    for (Tensor& g : gradients) g = capture.recorded(g);
  return gradients;
}

// Outside of captures, no operand of grad() is traced.
static void check_not_escaped(const Tensor& loss, const std::vector<Tensor>& wrt, const GradOptions& options) {
  const auto fail = [](const std::string& what, const Tensor& t) {
    WEFT_CHECK_AS(
        kFailedPrecondition, false, "grad: ", what, " (", t.type(),
        ") was traced by a captured function that has ended; only returned values leave it, so call grad inside");
  };
  if (loss.is_traced()) fail("the loss", loss);
  for (size_t i = 0; i < wrt.size(); ++i)
    if (wrt[i].is_traced()) fail(str_cat("operand ", i), wrt[i]);
  if (options.grad_output.defined() && options.grad_output.is_traced()) fail("grad_output", options.grad_output);
}

static std::vector<Tensor> gradients(const Tensor& loss, const std::vector<Tensor>& wrt, const GradOptions& options,
                                     bool of_parameters) {
  Capture* const capture = internal::thread_state.capture;
  // The operands of derivatives that are expanded now were checked when they were captured.
  if (capture && capture->differentiate) return internal::captured_grad(*capture, loss, wrt, options);
  if (!capture) check_not_escaped(loss, wrt, options);
  check(loss, wrt, options);
  GradOptions seeded = options;
  if (seeded.grad_output.defined()) seeded.grad_output = seeded.grad_output.to(loss.dtype());
  if (!capture) return eager_grad(loss, wrt, seeded, of_parameters);
  check_inside(*capture, loss, wrt);
  return internal::captured_grad(*capture, loss, wrt, seeded);
}

std::vector<Tensor> grad(const Tensor& loss, const std::vector<Tensor>& wrt, const GradOptions& options,
                         std::source_location loc) {
  internal::LineScope here(loc);
  return gradients(loss, wrt, options, false);
}

Gradients grad(const Tensor& loss, const std::vector<Parameter>& wrt, const GradOptions& options,
               std::source_location loc) {
  internal::LineScope here(loc);
  // In a capture, a parameter that was set has several values; the loss may have used any of them.
  std::vector<Tensor> values;
  std::vector<size_t> first;
  EnableGrad record;
  Capture* const capture = internal::thread_state.capture;
  for (const Parameter& p : wrt) {
    WEFT_CHECK(p.requires_grad(), "grad: parameter '", p.name(),
               "' is frozen; call requires_grad(true) or leave it out");
    internal::mark_trained(p);
    first.push_back(values.size());
    const Tensor now = p.value();
    std::vector<Tensor> reads;
    if (capture && capture->kind() == Capture::kStep) reads = capture->recorded_reads(&p.cell());
    if (reads.size() > 1) {
      values.insert(values.end(), reads.begin(), reads.end());
    } else {
      values.push_back(now);
    }
  }
  first.push_back(values.size());
  const std::vector<Tensor> each = gradients(loss, values, options, true);
  std::vector<Tensor> sums;
  for (size_t i = 0; i < wrt.size(); ++i) {
    sums.push_back(each[first[i]]);
    for (size_t k = first[i] + 1; k < first[i + 1]; ++k) accumulate_into(sums.back(), each[k]);
  }
  return {std::move(sums), wrt};
}

}  // namespace weft
