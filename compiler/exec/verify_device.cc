#include "compiler/exec/verify_device.h"

#include <algorithm>

#include "compiler/exec/error_bounds.h"
#include "compiler/exec/reference.h"
#include "compiler/exec/verify_fused.h"
#include "compiler/loop_ir/domain.h"
#include "compiler/loop_ir/fused.h"
#include "compiler/targets/cuda/run/operation.h"
#include "framework/dispatch/dispatch.h"
#include "framework/dispatch/state.h"
#include "ops/attention/record.h"
#include "ops/core/dot.h"
#include "ops/core/linear_cross_entropy.h"

namespace weft::internal {
namespace {

bool is_16bit(DType t) { return is_floating(t) && itemsize(t) == 2; }

// The same ops for operands on the CPU.
Ref<Graph> on_cpu(const Graph& body) {
  auto g = make_ref<Graph>();
  for (int32_t id = 0; id < body.size(); ++id) {
    Node n = body.node(id);
    n.attrs = n.attrs.without("device");
    for (TensorType& t : n.outputs) t.device = Device::cpu();
    g->add(std::move(n));
  }
  g->inputs = body.inputs;
  g->outputs = body.outputs;
  return g;
}

Ref<Graph> graph_of_one(const Node& node, std::span<const Tensor> in) {
  auto g = make_ref<Graph>();
  Node n = node;
  n.inputs.clear();
  for (const Tensor& t : in) n.inputs.push_back(g->add_input(t.type()));
  n.attrs = n.attrs.without("device");
  for (TensorType& t : n.outputs) t.device = Device::cpu();
  const int outputs = static_cast<int>(n.outputs.size());
  const int32_t id = g->add(std::move(n));
  for (int i = 0; i < outputs; ++i) g->outputs.push_back({id, i});
  return g;
}

// Of any mode, not only those that loop_ir::is_product knows.
bool has_product(const Graph& body) {
  for (int32_t id = 0; id < body.size(); ++id)
    if (body.node(id).op == &dot_op || body.node(id).op == &grouped_dot_op) return true;
  return false;
}

// Some value between the ops is rounded to 16 bits by them and not by a kernel that keeps it in a register.
bool keeps_16bit(const Graph& body) {
  int count = 0;
  for (int32_t id = 0; id < body.size(); ++id)
    for (const TensorType& t : body.node(id).outputs) count += body.node(id).op != &input_op && is_16bit(t.dtype);
  return count > 0;
}

class Check final : public DeviceCheck {
 public:
  Check(bool like_eager, bool tf32) : like_eager_(like_eager), tf32_(tf32) {}

  void compare(const Launch& l, const Node& n, std::span<const Tensor> in, std::span<const Tensor> out) override {
    NoGrad guard;
    if (l.copy) {
      ++bits_;
      for (size_t i = 0; i < out.size(); ++i) same_bits(l, n, out[i], in[i], i);
      return;
    }
    const std::initializer_list<const OpDef*> own_order{&attention_op, &attention_backward_op, &linear_cross_entropy_op,
                                                        &linear_cross_entropy_grad_op};
    if (n.op->is(kSideEffect) || n.op->is(kCollective) ||
        std::find(own_order.begin(), own_order.end(), n.op) != own_order.end()) {
      ++left_out_;
      return;
    }
    const bool fused = n.op == &loop_ir::fused_op;
    const Ref<Graph> body = fused ? on_cpu(loop_ir::body_of(n)) : graph_of_one(n, in);
    const bool product = has_product(*body);
    if (product || (fused && !like_eager_ && keeps_16bit(*body))) {
      ++bounds_;
      const std::vector<BoundedValue> want = bounded_outputs(*body, in, product && tf32_ ? 0x1p-10 : 0);
      for (size_t i = 0; i < out.size(); ++i)
        if (const int64_t at = first_outside(out[i], want[i]); at >= 0) fail(l, n, i, out[i], at, want[i]);
      return;
    }
    ++bits_;
    const std::vector<Tensor> want = evaluate(*body, in).outputs;
    for (size_t i = 0; i < out.size(); ++i) same_bits(l, n, out[i], want[i], i);
  }

  std::string to_string() const override {
    return str_cat(
        bits_, " launches have the bits of their ops on the CPU, ", bounds_, " (products) are within their bounds",
        left_out_ ? str_cat(", ", left_out_, " (attention, linear + cross-entropy) were not compared") : std::string());
  }

 private:
  static std::string name_of(const Launch& l, const Node& n) {
    const auto kernels = l.operation->kernels();
    return str_cat(kernels.empty() ? std::string() : str_cat("kernel ", kernels.front().symbol, " ("),
                   l.copy ? std::string("copy")
                   : n.op == &loop_ir::fused_op
                       ? ops_text(loop_ir::body_of(n), 8)
                       : str_cat(n.op->name, n.line.line ? str_cat(" at ", n.line) : std::string()),
                   kernels.empty() ? "" : ")");
  }
  static void same_bits(const Launch& l, const Node& n, const Tensor& got, const Tensor& want, size_t i) {
    check_same_bits(got, want, str_cat("on a GPU ", name_of(l, n), ": result ", i));
  }
  [[noreturn]] static void fail(const Launch& l, const Node& n, size_t i, const Tensor& got, int64_t at,
                                const BoundedValue& want) {
    auto number = [&](const Tensor& t) { return t.to(kFloat64).to_vector<double>()[at]; };
    std::string need = str_cat(number(want.eager));
    if (want.lo.defined()) need += str_cat(" or at least within [", number(want.lo), ", ", number(want.hi), "]");
    internal::fail(Code::kInternal, str_cat("verify: on a GPU ", name_of(l, n), ": result ", i, " ", got.type(),
                                            " differs from its ops run on the CPU first at flat position ", at,
                                            ": got ", number(got), "; need ", need));
  }

  const bool like_eager_, tf32_;
  int64_t bits_ = 0, bounds_ = 0, left_out_ = 0;
};

}  // namespace

std::unique_ptr<DeviceCheck> make_device_check(bool like_eager, bool tf32) {
  return std::make_unique<Check>(like_eager, tf32);
}

}  // namespace weft::internal
