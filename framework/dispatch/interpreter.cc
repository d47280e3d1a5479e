#include "framework/dispatch/interpreter.h"

#include <optional>

#include "framework/dispatch/capture.h"
#include "framework/dispatch/dispatch.h"
#include "framework/dispatch/tape.h"
#include "framework/ir/rewrite.h"

namespace weft {
namespace {

// During its lifetime, errors report a node's place instead of the place of the call that runs the graph.
struct NodePlace {
  explicit NodePlace(const Node& n) : name(n.scope, /*path=*/true) {}
  const internal::NoOrigin around;
  const internal::OriginName name;
};

}  // namespace

std::vector<Tensor> interpret(const Graph& g, std::span<const Tensor> args) {
  WEFT_CHECK(args.size() == g.inputs.size(), "interpret: the graph takes ", g.inputs.size(), " arguments; got ",
             args.size());
  std::vector<std::vector<Tensor>> values(g.size());
  const std::vector<int32_t> last_use = last_uses(g);

  // A graph that still has grad nodes is evaluated over the tape.
  bool history = false;
  for (int32_t id = 0; id < g.size(); ++id) history |= g.node(id).op->is(kReadsTape);

  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    if (n.op == &input_op) {
      const Tensor& a = args[n.attrs.i("index")];
      WEFT_CHECK(a.shape() == n.outputs[0].shape && a.dtype() == n.outputs[0].dtype, "interpret: argument ",
                 n.attrs.i("index"), " is ", a.type(), "; need ", n.outputs[0]);
      values[id] = {a};
    } else if (n.op == &cell_op) {
      values[id] = {CellHandle(g.cells[n.attrs.i("index")]).value()};
    } else if (n.op == &captured_op) {
      values[id] = {g.captured[n.attrs.i("index")]};
    } else {
      SmallVec<const Tensor*, 4> in;
      for (Value v : n.inputs) in.push_back(&values[v.node][v.index]);
      std::optional<NodePlace> place;
      if (!is_capturing()) place.emplace(n);
      EnableGrad grad((grad_enabled() || history) && !n.no_grad);
      if (n.op->is(kReadsTape)) {
        std::vector<Tensor> args;
        for (const Tensor* t : in) args.push_back(*t);
        internal::LineScope here(n.line);
        values[id] = n.op->decompose(n.attrs, args);
        continue;
      }
      values[id] = dispatch_multi(*n.op, in, n.attrs, n.line);
      if (history && n.op->is(kTapeStart) && !is_capturing())
        for (Tensor& t : values[id])
          if (!t.get().grad && is_floating(t.dtype())) t = with_tape(t, make_leaf(), 0);
    }
    for (Value v : n.inputs)
      if (last_use[v.node] == id) values[v.node].clear();
  }
  std::vector<Tensor> out;
  for (Value v : g.outputs) out.push_back(values[v.node][v.index]);
  for (const CellWrite& w : g.writes) CellHandle(g.cells[w.cell]).set(values[w.value.node][w.value.index]);
  return out;
}

}  // namespace weft
