// expand_grad: turns the structural `grad` nodes of a captured graph into ordinary nodes. It replays the graph into a
// new capture and runs reverse mode over the nodes replayed so far.
#include <algorithm>

#include "framework/autodiff/grad.h"
#include "framework/autodiff/joint_body.h"
#include "framework/dispatch/dispatch.h"
#include "framework/dispatch/interpreter.h"

namespace weft {
namespace {

using internal::OriginScope;
using internal::thread_state;

class Expander {
 public:
  explicit Expander(const Graph& from) : from_(from) {}

  Ref<Graph> run() {
    const EnableGrad on;
    Ref<Graph> g =
        recapture(from_, [&](const Node& n, std::span<const Tensor> in) -> std::optional<std::vector<Tensor>> {
          capture_ = thread_state.capture;
          capture_->differentiate = &differentiate_;
          if (n.op != &grad_op) return {};
          const OriginScope at(n, n.backward);
          const bool seeded = n.attrs.b("seeded");
          return differentiate(in[0], in.subspan(seeded ? 2 : 1), seeded ? in[1] : Tensor(), !n.no_grad);
        });
    g->stage = "joint";
    return g;
  }

  /// internal::differentiate_body.
  internal::JointBody run_body(const std::vector<bool>& inputs, const std::vector<bool>& outputs) {
    const EnableGrad on;
    Capture capture(Capture::kStep);
    capture_ = &capture;
    capture_->differentiate = &differentiate_;
    internal::JointBody joint;
    std::vector<Tensor> in, wrt, roots, seeds;
    for (size_t i = 0; i < from_.inputs.size(); ++i) {
      in.push_back(capture.add_input(from_.type(from_.inputs[i]), inputs[i]));
      if (inputs[i]) wrt.push_back(in.back());
    }
    std::vector<Tensor> results = interpret(from_, in);
    joint.first_backward = capture.graph().size();
    for (size_t o = 0; o < results.size(); ++o) {
      if (!outputs[o]) continue;
      roots.push_back(results[o]);
      seeds.push_back(capture.add_input(results[o].type()));
    }
    for (Tensor& g : reverse(roots, wrt, seeds, true)) {
      joint.reached.push_back(g.defined());
      if (g.defined()) results.push_back(std::move(g));
    }
    joint.graph = capture.finish(results);
    return joint;
  }

 private:
  std::vector<Tensor> differentiate(const Tensor& loss, std::span<const Tensor> wrt, const Tensor& seed,
                                    bool create_graph) {
    const internal::BackwardScope backward(true);
    std::vector<Tensor> grads =
        reverse({&loss, 1}, wrt, {{seed.defined() ? seed : internal::full_of(loss.type(), 1)}}, create_graph);
    for (size_t i = 0; i < wrt.size(); ++i)
      if (!grads[i].defined()) grads[i] = internal::full_of(wrt[i].type(), 0);
    return grads;
  }

  /// Reverse mode from several roots, each with its gradient; undefined where no root depends on an operand.
  std::vector<Tensor> reverse(std::span<const Tensor> roots, std::span<const Tensor> wrt, std::span<const Tensor> seeds,
                              bool create_graph) {
    const internal::BackwardScope backward(true);
    Graph& g = capture_->graph();
    const int32_t first = g.size();
    int32_t last = -1;
    for (const Tensor& t : roots) last = std::max(last, capture_->value_of(t).node);
    // The nodes that depend on wrt, up to the last root.
    std::vector<bool> needed(last + 1, false);
    std::vector<std::vector<Tensor>> grads(last + 1);
    for (const Tensor& t : wrt) {
      Value v = capture_->value_of(t);
      if (v.node <= last) needed[v.node] = true;
    }
    for (int32_t id = 0; id <= last; ++id) {
      const Node& n = g.node(id);
      if (stops(id) || (!n.op->vjp && !needed[id])) continue;
      for (Value v : n.inputs)
        if (needed[v.node] && n.op->vjp) needed[id] = true;
    }
    auto add_to = [&](Value v, const Tensor& t) {
      grads[v.node].resize(g.node(v.node).outputs.size());
      Tensor& slot = grads[v.node][v.index];
      slot = slot.defined() ? internal::accumulate(slot, t) : t;
    };
    for (size_t i = 0; i < roots.size(); ++i) add_to(capture_->value_of(roots[i]), seeds[i]);
    for (int32_t id = last; id >= 0; --id) {
      if (!needed[id] || grads[id].empty()) continue;
      const Node n = g.node(id);  // a copy: the graph grows below
      if (!n.op->vjp || stops(id) || n.inputs.empty()) continue;
      uint64_t mask = 0;
      std::vector<Tensor> in, out;
      for (size_t i = 0; i < n.inputs.size(); ++i) {
        Value v = n.inputs[i];
        in.push_back(capture_->wrap(v));
        if (needed[v.node] && is_floating(g.type(v).dtype)) mask |= uint64_t{1} << std::min<size_t>(i, 63);
      }
      if (!mask) continue;
      for (size_t i = 0; i < n.outputs.size(); ++i) out.push_back(capture_->wrap({id, static_cast<int32_t>(i)}));
      const OriginScope at(n, true);
      std::vector<Tensor> own = grads[id];
      Grads back = n.op->vjp({*n.op, n.attrs, in, out, own, mask});
      WEFT_BUG_IF(back.size() != in.size(), n.op->name, ": vjp returned ", back.size(), " gradients");
      for (size_t i = 0; i < back.size(); ++i) {
        if (!back[i].defined() || !needed[n.inputs[i].node]) continue;
        WEFT_BUG_IF(back[i].shape() != in[i].shape(), n.op->name, ": gradient ", i, " has shape ", back[i].shape(),
                    ", operand ", in[i].shape());
        add_to(n.inputs[i], back[i]);
      }
      if (!is_wrt(id, wrt)) grads[id].clear();
    }
    std::vector<Tensor> result;
    for (const Tensor& t : wrt) {
      Value v = capture_->value_of(t);
      bool have = v.node <= last && !grads[v.node].empty();
      result.push_back(have ? grads[v.node][v.index] : Tensor());
    }
    if (!create_graph) {
      constant_.resize(static_cast<size_t>(g.size()));
      std::fill(constant_.begin() + first, constant_.end(), true);
    }
    return result;
  }

  /// Whether no gradient passes through the node.
  bool stops(int32_t id) const {
    return capture_->graph().node(id).no_grad || (static_cast<size_t>(id) < constant_.size() && constant_[id]);
  }

  bool is_wrt(int32_t id, std::span<const Tensor> wrt) {
    for (const Tensor& t : wrt)
      if (capture_->value_of(t).node == id) return true;
    return false;
  }

  const Graph& from_;
  Capture* capture_ = nullptr;  // capture of the new graph
  std::vector<bool> constant_;  // node -> part of gradients without create_graph
  const Capture::Differentiate differentiate_ = [this](const Tensor& loss, std::span<const Tensor> wrt,
                                                       const Tensor& seed, bool create_graph) {
    return differentiate(loss, wrt, seed, create_graph);
  };
};

// Turns bodies that only differentiation needed into plain nodes.
Ref<Graph> inline_bodies(const Graph& from);

}  // namespace

Ref<Graph> expand_grad(const Graph& g) {
  Ref<Graph> r = Expander(g).run();
  return inline_bodies(*r);
}

internal::JointBody internal::differentiate_body(const Graph& body, const std::vector<bool>& inputs,
                                                 const std::vector<bool>& outputs) {
  return Expander(body).run_body(inputs, outputs);
}

namespace {

// True for an op that is one node only because of its derivative (softmax).
bool is_whole_for_grad(const OpDef& op) { return op.vjp && op.decompose && !op.kernel && !op.is(kStructural); }

// True for an op that calls its body once, and is one node only because of its derivative (checkpoint, custom_grad).
bool is_whole_body(const OpDef& op) { return op.is(kCallsBody) && !op.is(kRunsBody); }

Ref<Graph> inline_bodies(const Graph& from) {
  auto op_with_body = [](const Graph& g) -> const OpDef* {
    for (int32_t id = 0; id < g.size(); ++id) {
      const OpDef* op = g.node(id).op;
      if (is_whole_body(*op) || op->is(kReadsTape) || is_whole_for_grad(*op)) return op;
    }
    return nullptr;
  };
  auto current = make_ref<Graph>(from);
  constexpr int kMostRounds = 16;  // a `decompose` that calls itself twice doubles the graph in each
  const OpDef* op = nullptr;
  for (int round = 0; (op = op_with_body(*current)); round += op->is(kCustom)) {
    WEFT_CHECK(round < kMostRounds, op->name, ": `decompose` calls the op itself; need other ops");
    const Ref<Graph> next =
        recapture(*current, [](const Node& n, std::span<const Tensor> in) -> std::optional<std::vector<Tensor>> {
          const bool body = is_whole_body(*n.op);
          if (!body && !is_whole_for_grad(*n.op)) return {};
          const EnableGrad record(!n.no_grad);
          if (body) {  // its nodes keep their own lines
            const internal::BackwardScope backward(n.backward);
            return interpret(*n.attrs.get<Ref<Graph>>("body"), in);
          }
          const OriginScope at(n, n.backward);
          return internal::decomposed(*n.op, n.attrs, in, n.outputs);
        });
    // Bodies may themselves have grad nodes (checkpoint inside a differentiated body): expand those too.
    bool grads = false;
    for (int32_t id = 0; id < next->size(); ++id) grads |= next->node(id).op->is(kReadsTape);
    current = grads ? Expander(*next).run() : next;
  }
  return current;
}

}  // namespace
}  // namespace weft
