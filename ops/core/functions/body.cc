#include "ops/core/functions/body.h"

#include <algorithm>
#include <set>

#include "framework/autodiff/grad.h"

namespace weft::internal {
namespace {

// The nodes of a graph that a value depends on, as grad() sees it: constants for it end the search.
std::vector<int32_t> recorded_sources(const Graph& g, Value v) {
  std::vector<bool> seen(g.size());
  std::vector<int32_t> found{v.node};
  seen[v.node] = true;
  for (size_t i = 0; i < found.size(); ++i) {
    const Node& n = g.node(found[i]);
    if (n.op == &stop_gradient_op || (n.no_grad && !n.inputs.empty())) continue;
    for (Value in : n.inputs)
      if (!seen[in.node]) {
        seen[in.node] = true;
        found.push_back(in.node);
      }
  }
  return found;
}

Capture* owner_of(const Tensor& t) {
  for (Capture* c = thread_state.capture; c; c = c->parent())
    if (c->owns(t)) return c;
  return nullptr;
}

// The identity of a tensor: its value in a capture, its node on the tape, or the leaf of its cell.
using TensorIdentity = std::pair<const void*, int64_t>;

void add_keys(const Graph& g, int32_t id, std::set<TensorIdentity>& keys) {
  keys.insert({&g, id});
  const Node& n = g.node(id);
  if (!is_cell(n)) return;
  if (const void* leaf = g.cells[static_cast<size_t>(n.attrs.i("index"))]->leaf.get()) keys.insert({leaf, 0});
}

std::set<TensorIdentity> keys_of(const Tensor& t) {
  if (!t.is_traced()) return {{tape_node(t), t.get().index}};
  std::set<TensorIdentity> keys;
  if (Capture* const owner = owner_of(t)) add_keys(owner->graph(), t.get().node, keys);
  return keys;
}

bool meet(const std::set<TensorIdentity>& a, const std::set<TensorIdentity>& b) {
  return std::any_of(a.begin(), a.end(), [&](const TensorIdentity& key) { return b.contains(key); });
}

// Whether `used` was computed from a tensor with one of these keys, on the tape or in the open captures.
bool computed_from(const Tensor& used, const std::set<TensorIdentity>& keys) {
  std::vector<Tensor> next{used};
  std::set<TensorIdentity> seen = keys_of(used);
  const auto found = [&](const Tensor& t) {
    if (!t.get().grad) return false;
    const std::set<TensorIdentity> own = keys_of(t);
    if (meet(own, keys)) return true;
    if (!meet(own, seen)) next.push_back(t);
    seen.insert(own.begin(), own.end());
    return false;
  };
  while (!next.empty()) {
    const Tensor t = std::move(next.back());
    next.pop_back();
    if (!t.get().grad) continue;
    if (!t.is_traced()) {
      for (const Tensor& in : tape_node(t)->in)
        if (found(in)) return true;
      continue;
    }
    Capture* const owner = owner_of(t);
    if (!owner) continue;
    const Graph& g = owner->graph();
    const size_t own = g.inputs.size() - owner->lifted().size();
    for (int32_t id : recorded_sources(g, {t.get().node, t.get().index})) {
      std::set<TensorIdentity> source;
      add_keys(g, id, source);
      if (id != t.get().node && meet(source, keys)) return true;
      for (size_t k = own; k < g.inputs.size(); ++k)
        if (g.inputs[k].node == id && found(owner->lifted()[k - own])) return true;
    }
  }
  return false;
}

// A body has no tape of earlier computations. As in a captured function, such values are constants inside, but
// the same call outside of the body has other gradients.
void check_gradients(const char* what, const Body& body, size_t own) {
  const Graph& g = *body.graph;
  std::vector<const Tensor*> lifted(g.size());
  for (size_t k = own; k < g.inputs.size(); ++k) lifted[g.inputs[k].node] = &body.lifted[k - own];
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    if (n.op != &grad_op) continue;
    std::set<TensorIdentity> keys;
    for (size_t i = n.attrs.b("seeded") ? 2 : 1; i < n.inputs.size(); ++i)
      if (const Tensor* t = lifted[n.inputs[i].node]) keys.merge(keys_of(*t));
    if (keys.empty()) continue;
    for (int32_t source : recorded_sources(g, n.inputs[0])) {
      if (!lifted[source] || !computed_from(*lifted[source], keys)) continue;
      const OriginScope at(n, n.backward);
      fail(Code::kFailedPrecondition,
           str_cat("grad: ", lifted[source]->type(), " was computed from an operand of grad outside the function of ",
                   what, " and is a constant inside; need it computed inside, or detach() it"));
    }
  }
}

}  // namespace

Cost body_cost(const Graph& body) {
  Cost total;
  for (int32_t id = 0; id < body.size(); ++id)
    if (const Node& n = body.node(id); !is_argument(n) && !n.op->view) total += op_cost(body, n);
  return total;
}

Shape plus_one(Shape dims) {
  for (int64_t& d : dims) ++d;
  return dims;
}

Body capture_checked(const char* what, const TensorFn& fn, std::span<const TensorType> inputs, bool positions_only) {
  Body body = capture_body(fn, inputs, positions_only);
  check_gradients(what, body, inputs.size());
  return body;
}

Ref<Graph> expanded(const Ref<Graph>& body) {
  bool any = false;
  for (int32_t id = 0; id < body->size(); ++id) any |= body->node(id).op->is(kReadsTape);
  if (!any) return body;
  const auto constant = [](const Node& n, std::span<const Tensor> in) -> std::optional<std::vector<Tensor>> {
    if (n.op != &grad_op || !n.no_grad) return {};
    const OriginScope at(n, n.backward);
    const NoGrad constants;
    std::vector<Tensor> grads = dispatch_multi(grad_op, pointers(in), n.attrs);
    const BackwardScope gradients(true);  // and so are their sums over parts
    for (Tensor& t : grads) t = t.detach();
    return grads;
  };
  return expand_grad(*recapture(*body, constant));
}

Body capture_expanded(const char* what, const TensorFn& fn, std::span<const TensorType> inputs, bool positions_only) {
  Body body = capture_checked(what, fn, inputs, positions_only);
  body.graph = expanded(body.graph);
  return body;
}

}  // namespace weft::internal
