// Bodies: functions that are traced into separate graphs, which are then copied or run.
#pragma once
#include <vector>

#include "framework/dispatch/capture.h"
#include "framework/dispatch/dispatch.h"
#include "framework/dispatch/tape.h"

namespace weft::internal {

/// The values of a graph's nodes while they are copied into the open capture, or run.
class BodyValues {
 public:
  explicit BodyValues(const Graph& g) : g_(&g), values_(g.size()) {}

  void set(Value v, const Tensor& t) {
    values_[v.node].resize(g_->node(v).outputs.size());
    values_[v.node][v.index] = t;
  }
  bool has(Value v) const { return !values_[v.node].empty() && values_[v.node][v.index].defined(); }
  const Tensor& operator()(Value v) const {
    WEFT_BUG_IF(!has(v), "body: value ", v.node, " is neither computed nor read");
    return values_[v.node][v.index];
  }
  bool knows_operands(const Node& n) const {
    for (Value v : n.inputs)
      if (!has(v)) return false;
    return true;
  }
  /// Computes the results of a node, with the node's place, names and recording.
  void run(int32_t id) {
    run(id, [](const Node& n, TensorPtrs in) { return dispatch_multi(*n.op, in, n.attrs); });
  }
  /// The same by another function of the node and its operands.
  template <class Fn>
  void run(int32_t id, Fn&& fn) {
    const Node& n = g_->node(id);
    const OriginScope at(n, thread_state.backward || n.backward);
    const EnableGrad record(grad_enabled() && !n.no_grad);
    SmallVec<const Tensor*, 4> in;
    for (Value v : n.inputs) in.push_back(&(*this)(v));
    values_[id] = fn(n, TensorPtrs(in));
  }
  /// The results of the graph for these arguments, with each node that is no argument computed by fn(id).
  template <class Fn>
  std::vector<Tensor> run_all(std::span<const Tensor> args, const Fn& fn) {
    for (size_t i = 0; i < args.size(); ++i) set(g_->inputs[i], args[i]);
    for (int32_t id = 0; id < g_->size(); ++id)
      if (!is_argument(g_->node(id))) fn(id);
    std::vector<Tensor> out;
    for (Value v : g_->outputs) out.push_back((*this)(v));
    return out;
  }

 private:
  const Graph* g_;
  std::vector<std::vector<Tensor>> values_;
};

/// Traces `fn`. Throws FailedPrecondition if a loss reads a tensor that was computed outside of `fn` from an operand of
/// grad(): the gradient through it would be lost. `what` names the caller for the error.
Body capture_checked(const char* what, const TensorFn& fn, std::span<const TensorType> inputs,
                     bool positions_only = false);
/// A body in which gradients are ordinary nodes. Gradients without create_graph are constants for grad().
Ref<Graph> expanded(const Ref<Graph>& body);
/// Both.
Body capture_expanded(const char* what, const TensorFn& fn, std::span<const TensorType> inputs,
                      bool positions_only = false);

/// The cost of one run of a body; views cost nothing.
Cost body_cost(const Graph& body);

/// The numbers of these dims in a value with one more dim in front.
Shape plus_one(Shape dims);

}  // namespace weft::internal
