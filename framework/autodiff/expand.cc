// expand_grad: turns the structural `grad` nodes of a captured graph into ordinary nodes. It replays the graph into a
// new capture and runs reverse mode over the nodes replayed so far.
#include <algorithm>

#include "framework/autodiff/grad.h"
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

 private:
  std::vector<Tensor> differentiate(const Tensor& loss, std::span<const Tensor> wrt, const Tensor& seed,
                                    bool create_graph) {
    const internal::BackwardScope backward(true);
    Graph& g = capture_->graph();
    const int32_t first = g.size();
    const Value root = capture_->value_of(loss);
    // The nodes that depend on wrt, up to the loss.
    std::vector<bool> needed(root.node + 1, false);
    std::vector<std::vector<Tensor>> grads(root.node + 1);
    for (const Tensor& t : wrt) {
      Value v = capture_->value_of(t);
      if (v.node <= root.node) needed[v.node] = true;
    }
    for (int32_t id = 0; id <= root.node; ++id) {
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
    add_to(root, seed.defined() ? seed : internal::full_of(loss.type(), 1));
    for (int32_t id = root.node; id >= 0; --id) {
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
      bool have = v.node <= root.node && !grads[v.node].empty() && grads[v.node][v.index].defined();
      result.push_back(have ? grads[v.node][v.index] : internal::full_of(t.type(), 0));
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
  Capture* capture_ = nullptr;  // of the new graph
  std::vector<bool> constant_;  // by node: part of gradients without create_graph
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

namespace {

// True for an op that is one node only because of its derivative (softmax).
bool is_whole_for_grad(const OpDef& op) { return op.vjp && op.decompose && !op.kernel && !op.is(kStructural); }

Ref<Graph> inline_bodies(const Graph& from) {
  auto has_body = [](const Graph& g) {
    for (int32_t id = 0; id < g.size(); ++id) {
      const OpDef* op = g.node(id).op;
      if (op == &checkpoint_op || op == &custom_grad_op || op == &grad_op || is_whole_for_grad(*op)) return true;
    }
    return false;
  };
  auto current = make_ref<Graph>(from);
  while (has_body(*current)) {
    const Ref<Graph> next =
        recapture(*current, [](const Node& n, std::span<const Tensor> in) -> std::optional<std::vector<Tensor>> {
          const bool body = n.op == &checkpoint_op || n.op == &custom_grad_op;
          if (!body && !is_whole_for_grad(*n.op)) return {};
          const EnableGrad record(!n.no_grad);
          if (body) {  // its nodes keep their own lines
            const internal::BackwardScope backward(n.backward);
            return interpret(*n.attrs.get<Ref<Graph>>("body"), in);
          }
          const OriginScope at(n, n.backward);
          return n.op->decompose(n.attrs, in);
        });
    // Bodies may themselves have grad nodes (checkpoint inside a differentiated body): expand those too.
    bool grads = false;
    for (int32_t id = 0; id < next->size(); ++id) grads |= next->node(id).op == &grad_op;
    current = grads ? Expander(*next).run() : next;
  }
  return current;
}

}  // namespace
}  // namespace weft
