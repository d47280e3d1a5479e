#include "compiler/verify/launch_check.h"

#include <cstdlib>
#include <unordered_set>

#include "compiler/loop_ir/fused.h"
#include "compiler/verify/error_bounds.h"
#include "compiler/verify/reference.h"
#include "framework/base/switches.h"
#include "framework/dispatch/capture.h"
#include "framework/dispatch/state/state.h"
#include "framework/ir/rewrite.h"

namespace weft::internal {
namespace {

// The launch's ops, for operands on the CPU.
Ref<Graph> ops_of(const Node& node, std::span<const Tensor> in) {
  auto on_host = [](Node n) {
    n.attrs = n.attrs.without("device");
    for (TensorType& t : n.outputs) t.device = Device::cpu();
    return n;
  };
  if (node.op->is(kGroup)) {
    auto g = make_ref<Graph>();
    const Graph& body = loop_ir::body_of(node);
    for (int32_t id = 0; id < body.size(); ++id) g->add(on_host(body.node(id)));
    g->inputs = body.inputs;
    g->outputs = body.outputs;
    return g;
  }
  std::vector<TensorType> types;
  for (const Tensor& t : in) types.push_back(t.type());
  return graph_of_one(on_host(node), types);
}

// The primitives of attention, to bound its results. Null if they have too many elements, and for backward: it rounds
// gradients of scores to 16 bits, which its primitives do not.
Ref<Graph> attention_ops(const Node& node, std::span<const Tensor> in) {
  constexpr int64_t kMostElements = int64_t{1} << 16;
  if (node.op->num_outputs < 0) return {};
  std::vector<TensorType> types;
  for (const Tensor& t : in) types.push_back(t.type());
  Ref<Graph> g =
      capture_graph([&](std::span<const Tensor> args) { return node.op->decompose(node.attrs, args); }, types);
  for (int32_t id = 0; id < g->size(); ++id)
    for (const TensorType& t : g->node(id).outputs)
      if (t.shape.numel() > kMostElements) return {};
  return g;
}

class Check final : public LaunchCheck {
 public:
  Check(Target& target, const PrepareOptions& options)
      : target_(target), options_(options), once_(target.limits().synchronous) {}

  bool wants(const Operation& o, const Node& n, bool copy) override {
    return agreement(o, n, copy).kind != Agreement::kReference && !(once_ && compared_.count(&o));
  }

  void compare(const Operation& o, const Node& n, bool copy, std::span<const Tensor> in,
               std::span<const Tensor> out) override {
    NoGrad guard;
    const Agreement how = agreement(o, n, copy);
    Ref<Graph> ops;
    if (!copy && how.kind != Agreement::kNone) ops = n.op->is(kAttention) ? attention_ops(n, in) : ops_of(n, in);
    if (how.kind == Agreement::kNone || (!copy && !ops)) {
      ++left_out_;
      compared_.insert(&o);
      return;
    }
    const bool bits = how.kind == Agreement::kBits;
    ++(bits ? bits_ : bounds_);
    std::vector<BoundedValue> want;
    if (copy) {
      want.push_back({in[0], {}, {}, {}});
    } else if (bits) {
      for (Tensor& t : evaluate(*ops, in).outputs) want.push_back({std::move(t), {}, {}, {}});
    } else {
      want = bounded_outputs(*ops, in, how.operand_error, how.approximate);
    }
    for (size_t i = 0; i < out.size(); ++i) {
      const int64_t at = bits ? first_difference(out[i], want[i].eager) : first_outside(out[i], want[i]);
      if (at < 0) continue;
      std::string need = element_text(want[i].eager, at);
      if (want[i].lo.defined())
        need += str_cat(" or at least within [", element_text(want[i].lo, at), ", ", element_text(want[i].hi, at), "]");
      internal::fail(Code::kInternal,
                     str_cat("verify: ", name_of(o, n, copy), ": result ", i, " ", out[i].type(),
                             " first differs from its ops run one by one at ", index_text(at, out[i].shape()), ": got ",
                             element_text(out[i], at), "; need ", need, reproduction(o, ops, in, want)));
    }
    compared_.insert(&o);
  }

  std::string to_string() const override {
    if (once_) return {};
    return str_cat(
        bits_, " launches have the bits of their ops on the CPU, ", bounds_, " (products) are within their bounds",
        left_out_ ? str_cat(", ", left_out_, " (attention, linear + cross-entropy) were not compared") : std::string());
  }

 private:
  Agreement agreement(const Operation& o, const Node& n, bool copy) const {
    if (copy) return {once_ ? Agreement::kReference : Agreement::kBits};
    return target_.agreement(o, n, options_);
  }

  // "on cuda:0, kernel NAME (add, mul at model.cc:12)".
  std::string name_of(const Operation& o, const Node& n, bool copy) const {
    std::string ops = copy               ? std::string("copy")
                      : n.op->is(kGroup) ? loop_ir::ops_text(loop_ir::body_of(n), 8)
                                         : str_cat(n.op->name, n.line.line ? " at " : "", n.line);
    const char* kernel = o.name();
    return str_cat(once_ ? std::string() : str_cat("on ", n.outputs[0].device, ", "),
                   kernel ? str_cat("kernel ", kernel, " (", ops, ")") : ops);
  }

  std::string reproduction(const Operation& o, const Ref<Graph>& ops, std::span<const Tensor> in,
                           std::span<const BoundedValue> want) const {
    if (!ops) return {};
    std::vector<Tensor> operands, right;
    for (const Tensor& t : in) operands.push_back(copy_of(t));
    for (const BoundedValue& w : want) right.push_back(copy_of(w.eager));
    const std::string where = target_.write_reproduction(o, *ops, operands, right);
    return where.empty() ? where : str_cat("; ", where);
  }

  Target& target_;
  const PrepareOptions options_;
  const bool once_;
  std::unordered_set<const Operation*> compared_;
  int64_t bits_ = 0, bounds_ = 0, left_out_ = 0;
};

}  // namespace

std::unique_ptr<LaunchCheck> make_launch_check(Target& target, const PrepareOptions& options) {
  return std::make_unique<Check>(target, options);
}

bool verifies_kernels() {
  if (switch_value("WEFT_VERIFY") == "auto") return std::getenv("TEST_TMPDIR") != nullptr;
  return switch_on("WEFT_VERIFY");
}

}  // namespace weft::internal
