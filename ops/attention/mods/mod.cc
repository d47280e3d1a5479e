#include "ops/attention/mods/mod.h"

#include <optional>

#include "framework/dispatch/dispatch.h"
#include "framework/ir/op_def.h"
#include "framework/ir/rewrite.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/index.h"
#include "ops/core/indexing/view.h"

namespace weft {

MaskMod MaskMod::shift(int64_t dq, int64_t dkv) const {
  return [m = *this, dq, dkv](Index b, Index h, Index q, Index kv) {
    return m(b, h, dq ? Index(q + dq) : q, dkv ? Index(kv + dkv) : kv);
  };
}

ScoreMod ScoreMod::shift(int64_t dq, int64_t dkv) const {
  return [m = *this, dq, dkv](const Score& s) {
    Score there = s;
    if (dq) there.q = Index(s.q + dq);
    if (dkv) there.kv = Index(s.kv + dkv);
    return m(there);
  };
}

MaskMod operator&(MaskMod a, MaskMod b) {
  return [a, b](Index i, Index h, Index q, Index kv) { return logical_and(a(i, h, q, kv), b(i, h, q, kv)); };
}

MaskMod operator|(MaskMod a, MaskMod b) {
  return [a, b](Index i, Index h, Index q, Index kv) { return logical_or(a(i, h, q, kv), b(i, h, q, kv)); };
}

MaskMod operator!(MaskMod a) {
  return [a](Index i, Index h, Index q, Index kv) { return logical_not(a(i, h, q, kv)); };
}

namespace internal {
namespace {

// Throws if the kernels, the analysis or the derivative of a mod do not support an op of the graph.
void check_ops(const Graph& g, const char* what) {
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    const bool indexing =
        (n.op == &index_select_op && n.attrs.i("dim") == 0 && g.type(n.inputs[1]).shape.numel() == 1) ||
        n.op == &reshape_op;
    const bool scalar = n.op->is(kPointwise) && n.outputs[0].shape.empty();
    WEFT_CHECK(indexing || scalar || n.op->is(kStructural) || n.op == &constant_op, what, ": uses ", n.op->name,
               n.line.line ? " at " : "", n.line.to_string(),
               "; need ops on single values and table[index], so that it can be computed for each score in a kernel");
  }
}

/// Moves computations on captured tensors only (table.to(kFloat32), table[0], exp(slopes)) out of a mod into ordinary
/// ops: they are computed once, with ordinary gradients, and the mod reads the result. `own`: number of the mod's own
/// inputs.
class Hoisting {
 public:
  Hoisting(const Body& body, size_t own)
      : from_(*body.graph), lifted_(body.lifted), own_(own), values_(from_.size()), now_(from_, *to_) {
    for (int32_t id = 0; id < from_.size(); ++id) of_.push_back(kind_of(id));
  }

  Body run() {
    bool any = false;
    for (int32_t id = 0; id < from_.size(); ++id) any = any || (of_[id] == kTables && !is_argument(from_.node(id)));
    if (!any) return {};
    for (size_t i = 0; i < own_; ++i) now_.map(from_.inputs[i], to_->add_input(from_.type(from_.inputs[i])));
    for (int32_t id = 0; id < from_.size(); ++id)
      if (of_[id] == kPoint && !is_argument(from_.node(id))) copy(id);
    for (Value v : from_.outputs) to_->outputs.push_back(inside(v));
    return {to_, std::move(reads_)};
  }

 private:
  enum HoistKind : uint8_t { kNumbers, kTables, kPoint };

  HoistKind kind_of(int32_t id) const {
    const Node& n = from_.node(id);
    for (size_t i = 0; i < from_.inputs.size(); ++i)
      if (from_.inputs[i].node == id) return i < own_ ? kPoint : kTables;
    if (n.op->is(kRandom) || n.op->is(kSideEffect) || n.op->is(kStructural) || n.op->is(kReadsTape)) return kPoint;
    HoistKind k = kNumbers;
    for (Value v : n.inputs) k = std::max(k, of_[v.node]);
    return k;
  }

  void copy(int32_t id) {
    for (Value v : from_.node(id).inputs) inside(v);
    now_.copy(id);
  }

  /// The value in the new graph; a value computed outside becomes a further input.
  Value inside(Value v) {
    if (now_.has(v)) return now_(v);
    if (of_[v.node] == kNumbers) {
      copy(v.node);
    } else {
      now_.map(v, to_->add_input(from_.type(v)));
      reads_.push_back(outside(v));
    }
    return now_(v);
  }

  /// The value computed by ordinary ops.
  Tensor outside(Value v) {
    for (size_t i = own_; i < from_.inputs.size(); ++i)
      if (from_.inputs[i] == v) return lifted_[i - own_];
    std::vector<Tensor>& results = values_[v.node];
    if (results.empty()) {
      const Node& n = from_.node(v);
      std::vector<Tensor> in;
      for (Value x : n.inputs) in.push_back(outside(x));
      std::optional<NoGrad> quiet;
      if (n.no_grad) quiet.emplace();
      results = dispatch_multi(*n.op, internal::pointers(in), n.attrs, n.line);
    }
    return results[v.index];
  }

  const Graph& from_;
  const std::vector<Tensor>& lifted_;
  size_t own_;
  std::vector<HoistKind> of_;
  std::vector<std::vector<Tensor>> values_;
  Ref<Graph> to_ = make_ref<Graph>();
  NodeCopier now_;
  std::vector<Tensor> reads_;
};

Body hoisted(Body body, size_t own) {
  Body out = Hoisting(body, own).run();
  return out.graph ? out : body;
}

/// The same graph with every value on the CPU: a mod computes single values, wherever its kernel runs.
Ref<Graph> on_cpu(const Graph& from) {
  return changed_copy(from, [](Node& n) {
    for (TensorType& t : n.outputs) t.device = Device::cpu();
    n.attrs = n.attrs.without("device");
  });
}

/// A mod's graph. Its indices are traced on the CPU, which stores numbers and the tables of presets, or on the call's
/// device if the mod closes over tensors there.
Body traced(const char* what, Device device, std::vector<TensorType> types,
            const std::function<Tensor(std::span<const Tensor>)>& mod) {
  auto body_with = [&] {
    return hoisted(capture_body([&](std::span<const Tensor> in) { return std::vector<Tensor>{mod(in)}; }, types,
                                /*positions_only=*/true),
                   types.size());
  };
  Body body;
  try {
    body = body_with();
  } catch (const Error&) {
    if (device == Device::cpu()) throw;
    for (TensorType& t : types) t.device = device;
    body = body_with();
    body.graph = on_cpu(*body.graph);
  }
  check_ops(*body.graph, what);
  // The captured tensors are moved to the device; a constant is moved outside of the step.
  for (Tensor& t : body.lifted) {
    if (t.device() == device || device == Device::cpu()) continue;
    struct Outside {
      Capture* const saved = thread_state.capture;
      ~Outside() { thread_state.capture = saved; }
    } outside;
    if (!t.get().trace) thread_state.capture = nullptr;
    t = t.to(device);
  }
  return body;
}

}  // namespace

Body trace_mask(const MaskMod& mask, Device device) {
  return traced("mask_mod", device, {4, {kInt64, Device::cpu(), {}}}, [&](std::span<const Tensor> in) {
    Tensor m = mask(Index(in[0]), Index(in[1]), Index(in[2]), Index(in[3]));
    WEFT_CHECK(m.defined() && m.dtype() == kBool && m.dim() == 0, "mask_mod: returned ",
               m.defined() ? str_cat(m.type()) : "nothing", "; need one bool, as q >= kv is");
    return m;
  });
}

Body trace_score(const ScoreMod& mod, DType dtype, Device device) {
  std::vector<TensorType> types(5, {kInt64, Device::cpu(), {}});
  types[0].dtype = dtype;
  return traced("score_mod", device, types, [&](std::span<const Tensor> in) {
    Tensor s = mod(Score{in[0], Index(in[1]), Index(in[2]), Index(in[3]), Index(in[4])});
    WEFT_CHECK(s.defined() && is_floating(s.dtype()) && s.dim() == 0, "score_mod: returned ",
               s.defined() ? str_cat(s.type()) : "nothing", "; need one floating-point value, as s.value * 2 is");
    return cast(s, dtype);
  });
}

}  // namespace internal
}  // namespace weft
