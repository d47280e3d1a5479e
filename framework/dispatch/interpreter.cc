#include "framework/dispatch/interpreter.h"

#include <optional>

#include "framework/dispatch/capture.h"
#include "framework/dispatch/dispatch.h"
#include "framework/dispatch/tape.h"
#include "framework/ir/rewrite.h"

namespace weft {

using internal::Leaf;

namespace {

// During its lifetime, errors report a node's place instead of the place of the call that runs the graph.
struct NodePlace {
  explicit NodePlace(const Node& n) : name(n.scope, /*path=*/true) {}
  const internal::NoOrigin around;
  const internal::OriginName name;
};

}  // namespace

internal::Evaluation internal::evaluate_nodes(const Graph& g, std::span<const Tensor> args, NodeEvaluator run) {
  const Autocast off(std::nullopt);  // the graph has the casts
  std::vector<std::vector<Tensor>> values(g.size());
  const std::vector<int32_t> last_use = last_uses(g);
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    std::vector<Tensor> in;
    for (Value v : n.inputs) in.push_back(values[v.node][v.index]);
    switch (n.op->leaf) {
      case Leaf::kNone:
        break;
      case Leaf::kArgument:
        values[id] = {args[n.attrs.i("index")]};
        break;
      case Leaf::kCell:
        values[id] = {CellHandle(g.cells[n.attrs.i("index")]).value()};
        break;
      case Leaf::kCaptured:
        values[id] = {g.captured[n.attrs.i("index")]};
        break;
    }
    if (!run(id, in, values[id])) return {};
    for (Value v : n.inputs)
      if (last_use[v.node] == id) values[v.node].clear();
  }
  Evaluation e;
  for (Value v : g.outputs) e.outputs.push_back(values[v.node][v.index]);
  for (const CellWrite& w : g.writes) e.writes.push_back(values[w.value.node][w.value.index]);
  return e;
}

std::vector<Tensor> interpret(const Graph& g, std::span<const Tensor> args) {
  WEFT_CHECK(args.size() == g.inputs.size(), "interpret: the graph takes ", g.inputs.size(), " arguments; got ",
             args.size());
  // A graph that still has grad nodes is evaluated over the tape.
  bool history = false;
  for (int32_t id = 0; id < g.size(); ++id) history |= g.node(id).op->is(kReadsTape);

  const auto run = [&](int32_t id, std::span<const Tensor> in, std::vector<Tensor>& out) {
    const Node& n = g.node(id);
    if (is_argument(n))
      WEFT_CHECK(out[0].shape() == n.outputs[0].shape && out[0].dtype() == n.outputs[0].dtype, "interpret: argument ",
                 n.attrs.i("index"), " is ", out[0].type(), "; need ", n.outputs[0]);
    if (!out.empty()) return true;
    std::optional<NodePlace> place;
    if (!is_capturing()) place.emplace(n);
    EnableGrad grad((grad_enabled() || history) && !n.no_grad);
    if (n.op->is(kReadsTape)) {
      internal::LineScope here(n.line);
      out = n.op->decompose(n.attrs, in);
      return true;
    }
    out = dispatch_multi(*n.op, internal::pointers(in), n.attrs, n.line);
    if (history && n.op->is(kTapeStart) && !is_capturing())
      for (Tensor& t : out)
        if (!t.get().grad && is_floating(t.dtype())) t = with_tape(t, make_leaf(), 0);
    return true;
  };
  internal::Evaluation e = internal::evaluate_nodes(g, args, run);
  for (size_t i = 0; i < g.writes.size(); ++i) CellHandle(g.cells[g.writes[i].cell]).set(e.writes[i]);
  return std::move(e.outputs);
}

}  // namespace weft
