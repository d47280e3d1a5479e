#include "compiler/passes/retrace.h"

#include "framework/dispatch/capture.h"
#include "framework/ir/op_def.h"

namespace weft {
namespace {

// Sets the line, scope and mark of new nodes while it lives.
class Place {
 public:
  explicit Place(const Node& n) : line_(n.line), backward_(n.backward), saved_(internal::thread_state.scope) {
    internal::thread_state.scope = n.scope;
  }
  ~Place() { internal::thread_state.scope = saved_; }
  Place(const Place&) = delete;

 private:
  internal::LineScope line_;
  internal::BackwardScope backward_;
  const char* saved_;
};

}  // namespace

Ref<Graph> retrace(const Graph& g, Replacement replacement, bool record) {
  Capture capture(Capture::kStep);
  Graph& to = capture.graph();
  to.captured = g.captured;
  to.cells = g.cells;
  to.inputs.resize(g.inputs.size());
  std::vector<std::vector<Tensor>> values(g.size());
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    std::vector<Tensor> in;
    for (Value v : n.inputs) in.push_back(values[v.node][v.index]);
    {
      const Place place(n);
      if (record) {
        EnableGrad guard(true);
        values[id] = replacement(n, in);
      } else {
        NoGrad guard;
        values[id] = replacement(n, in);
      }
    }
    if (!values[id].empty()) continue;
    Node copy = n;
    copy.inputs.clear();
    for (const Tensor& t : in) copy.inputs.push_back(capture.value_of(t));
    const int32_t now = to.add(std::move(copy));
    if (n.op == &input_op) to.inputs[n.attrs.i("index")] = {now, 0};
    for (size_t i = 0; i < n.outputs.size(); ++i) values[id].push_back(capture.wrap({now, static_cast<int32_t>(i)}));
  }
  for (const CellWrite& w : g.writes)
    to.writes.push_back({w.cell, capture.value_of(values[w.value.node][w.value.index])});
  std::vector<Tensor> out;
  for (Value v : g.outputs) out.push_back(values[v.node][v.index]);
  Ref<Graph> next = capture.finish(out);
  next->stage = g.stage;
  return next;
}

}  // namespace weft
