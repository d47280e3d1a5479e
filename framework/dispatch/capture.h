// Capture: runs a function once on traced tensors, so that its ops become the nodes of a Graph.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "framework/base/function_ref.h"
#include "framework/dispatch/state/state.h"
#include "framework/dispatch/tree.h"
#include "framework/ir/cell.h"
#include "framework/ir/graph.h"

namespace weft {

/// A host bool that changes the computation (Module::train/eval); copies share it. A read under capture makes the flag
/// and its value part of the key of the captured graph.
class HostFlag {
 public:
  explicit HostFlag(bool value) : state_(make_ref<FlagState>(value)) {}
  bool get() const;
  bool peek() const { return state_->value; }
  void set(bool v) const { state_->value = v; }
  /// True if both are handles of the same flag.
  bool operator==(const HostFlag& o) const { return state_ == o.state_; }

 private:
  struct FlagState final : RefCounted {
    explicit FlagState(bool v) : value(v) {}
    bool value;
  };
  Ref<FlagState> state_;
};

/// One open capture of this thread. Captures nest: a body (checkpoint, custom_grad, a mask) lifts the tensors that it
/// closes over.
class Capture final {
 public:
  enum CaptureKind {
    kStep,         // top level: concrete tensors become captured constants, cells are read and written
    kBody,         // nested: every tensor from outside becomes a further input (see lifted)
    kInitializer,  // the initializer of a cell: generator state is frozen as constants
  };
  explicit Capture(CaptureKind kind);
  ~Capture();
  Capture(const Capture&) = delete;

  CaptureKind kind() const { return kind_; }
  Capture* parent() const { return parent_; }
  /// The capture that reads cells and owns the step: this one, or the nearest enclosing one that is not a body.
  Capture* root();
  /// A further input. Its uses are recorded for grad() if `recorded` is set, and in a body if it is floating-point.
  Tensor add_input(const TensorType& type, bool recorded = false);
  /// The value of `t` in this capture. Lifts or captures `t` if it comes from outside.
  Value value_of(const Tensor& t);
  /// Appends a node and returns its traced results.
  void add_node(const OpDef& op, std::span<const Tensor* const> in, const Attrs& attrs, SourceLine line,
                std::span<const TensorType> types, std::span<Tensor> out);
  Tensor wrap(Value v);
  /// Whether `t` is a value of this capture.
  bool owns(const Tensor& t) const;
  /// The same value as a handle whose uses are recorded for grad(), as tape.h does for a concrete tensor.
  Tensor recorded(const Tensor& t) const;
  Tensor read_cell(const Ref<Cell>& cell);
  void write_cell(const Ref<Cell>& cell, const Tensor& t);
  /// The values of a cell that were read so far and record for grad(): one for each write in between.
  std::vector<Tensor> recorded_reads(const Cell* cell);
  /// Closes the capture with these outputs; tensors traced by it cannot be used afterwards.
  Ref<Graph> finish(std::span<const Tensor> outputs);

  Graph& graph() { return *graph_; }
  /// kBody: the outside tensors of the inputs that lifting added, in order.
  const std::vector<Tensor>& lifted() const { return lifted_; }
  /// The concrete tensors from outside that were used so far.
  const std::vector<Tensor>& from_outside() const { return keep_; }
  /// kBody of a mod or of kernel(): a single index is a position, which does not count from the end. Their analysis
  /// follows positions, not the choice between two.
  bool positions_only = false;
  /// The host flags read so far and their values: part of the capture key.
  std::vector<std::pair<HostFlag, bool>> flags;
  /// Gradients of `loss` in this capture. Set by expand_grad: grad() then differentiates at once and records no node.
  using Differentiate = std::function<std::vector<Tensor>(const Tensor& loss, std::span<const Tensor> wrt,
                                                          const Tensor& grad_output, bool create_graph)>;
  const Differentiate* differentiate = nullptr;

 private:
  struct CaptureLink;
  /// The value of an operand of an op that is recorded.
  Value recorded_operand(const Tensor& t);

  CaptureKind kind_;
  Capture* parent_;
  bool saved_grad_;
  internal::StepScope own_step_;
  internal::StepScope* saved_step_;
  Ref<Graph> graph_;
  Ref<CaptureLink> link_;
  Ref<RefCounted> recorded_;  // the tape link of all recorded values: a leaf
  std::vector<Tensor> lifted_;
  std::unordered_map<const void*, Value> seen_;      // TensorImpl -> value
  std::vector<Tensor> keep_;                         // keeps seen_'s addresses valid
  std::unordered_map<const Cell*, Value> cell_now_;  // latest value of a cell in program order
  std::unordered_set<const Cell*> written_;          // cells set and not read since then
  std::unordered_map<const Cell*, std::vector<Value>> recorded_reads_;
};

namespace internal {

/// During its lifetime, new nodes carry the line and scope of `n`, which must outlive it, and this mark of backward.
/// Autocast is off: the graph of `n` has the casts.
class OriginScope {
 public:
  OriginScope(const Node& n, bool backward) : names_(n.scope, /*path=*/true), backward_(backward) {
    origin.line = &n.line;
  }
  OriginScope(const OriginScope&) = delete;

 private:
  const NoOrigin around_;
  const OriginName names_;
  const BackwardScope backward_;
  const Autocast no_autocast_{std::nullopt};
};

}  // namespace internal

/// A new capture of `g`, whose stage it keeps. `replacement` gets each node and its operands in the new graph, and
/// returns the results that replace the node, or nothing for a copy of the node.
using Recapture = FunctionRef<std::optional<std::vector<Tensor>>(const Node&, std::span<const Tensor>)>;
Ref<Graph> recapture(const Graph& g, Recapture replacement);

using TensorFn = std::function<std::vector<Tensor>(std::span<const Tensor>)>;

/// Runs `fn` on traced tensors of these types and returns its graph: inputs, cell reads and writes, outputs. With
/// `recorded`, the floating-point inputs record for grad().
Ref<Graph> capture_graph(const TensorFn& fn, std::span<const TensorType> inputs, bool recorded = false);

/// Traces a body: the tensors that `fn` closes over become further inputs, returned as `lifted`.
struct Body {
  Ref<Graph> graph;
  std::vector<Tensor> lifted;
};
/// `positions_only`: see Capture.
Body capture_body(const TensorFn& fn, std::span<const TensorType> inputs, bool positions_only = false);

/// The graph of fn(example_inputs...); computes nothing. fn returns a Tensor, or a tuple, array, vector or aggregate of
/// Tensors.
template <class Fn, class... A>
Graph capture(Fn&& fn, const A&... example_inputs) {
  std::vector<Tensor> flat;
  (flatten(example_inputs, flat), ...);
  std::vector<TensorType> types;
  for (const Tensor& t : flat) types.push_back(t.type());
  return *capture_graph(
      [&](std::span<const Tensor> in) {
        size_t at = 0;
        std::tuple<A...> args{unflatten(example_inputs, in, at)...};
        std::vector<Tensor> out;
        if constexpr (std::is_void_v<decltype(std::apply(fn, args))>) {
          std::apply(fn, args);
        } else {
          flatten(std::apply(fn, args), out);
        }
        return out;
      },
      types);
}

}  // namespace weft
