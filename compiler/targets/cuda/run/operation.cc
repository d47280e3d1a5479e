// Chooses the kind of operation for an op.
#include "compiler/targets/cuda/run/operation.h"

#include "compiler/loop_ir/domain.h"
#include "compiler/targets/cuda/ops/ops.h"
#include "compiler/targets/cuda/run/attention_operation.h"
#include "compiler/targets/cuda/run/dot_operation.h"
#include "compiler/targets/cuda/run/fused_operation.h"
#include "compiler/targets/cuda/run/graph_operation.h"
#include "framework/base/error.h"
#include "framework/cuda/transfer/copy.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/view.h"
#include "ops/core/misc.h"

namespace weft::cuda {
namespace {

using internal::body_of_one;
using internal::group_operation;

// Moves elements with the driver's copies, for types and layouts that no kernel supports.
class CopyOperation final : public DeviceOperation {
 public:
  CopyOperation(const StridedView& from, const StridedView& to) : from_(from), to_(to) {}
  void enqueue(const Addresses& at, Stream& stream, SourceLine) const override {
    StridedView from = from_, to = to_;
    from.data = at.in[0];
    to.data = at.out[0];
    copy_on_device(from, to, stream);
  }

 private:
  StridedView from_, to_;
};

// debug_print: copies the value to the host and runs the CPU's kernel.
class PrintOperation final : public DeviceOperation {
 public:
  PrintOperation(const OpDef& op, const Attrs& attrs, const StridedView& from, const StridedView& to)
      : op_(op), attrs_(attrs), from_(from), to_(to) {}
  bool capturable() const override { return false; }
  void enqueue(const Addresses& at, Stream& stream, SourceLine) const override {
    StridedView from = from_, to = to_;
    from.data = at.in[0];
    to.data = at.out[0];
    const Tensor value = Tensor::empty({from.dtype, Device::cpu(), from.shape}), same = Tensor::empty(value.type());
    const StridedView host[] = {value.view_for_kernel()}, result[] = {same.view_for_kernel()};
    copy_to_host(from, host[0], stream);
    op_.kernel({op_, attrs_, host, result});
    copy_on_device(from, to, stream);
  }

 private:
  const OpDef& op_;
  const Attrs attrs_;
  StridedView from_, to_;
};

class Nothing final : public DeviceOperation {
 public:
  void enqueue(const Addresses&, Stream&, SourceLine) const override {}
};

bool all_empty(std::span<const StridedView> out) {
  for (const StridedView& v : out)
    if (v.numel() > 0) return false;
  return true;
}

}  // namespace

bool approximates(const Graph& body, bool round_like_eager) {
  if (round_like_eager) return false;
  for (int32_t id = 0; id < body.size(); ++id)
    for (const TensorType& t : body.node(id).outputs)
      if (!is_argument(body.node(id)) && is_16bit(t.dtype)) return true;
  return false;
}

std::unique_ptr<DeviceOperation> prepare(const OpDef& op, const Attrs& attrs, std::span<const StridedView> in,
                                         std::span<const StridedView> out, const GpuProperties& gpu, int alignment,
                                         const OperationOptions& options) {
  if (all_empty(out) && !op.is(kSideEffect)) return std::make_unique<Nothing>();
  loop_ir::LowerOptions lower;
  lower.round_like_eager = options.round_like_eager;
  if (op.is(kGroup)) {
    const Graph& body = *attrs.get<Ref<Graph>>("body");
    // A body that cannot be one kernel runs op by op.
    if (!loop_ir::cannot_lower(body).empty())
      return internal::graph_operation(op.name, body, in, out, gpu, alignment, options);
    OperationOptions own = options;
    own.approximate = approximates(body, options.round_like_eager);
    for (int32_t id = 0; id < body.size(); ++id)
      if (loop_ir::is_product(body.node(id)))
        return internal::fused_product_operation(op.name, body, in, out, gpu, alignment, own);
    return group_operation(op.name, body, in, out, gpu, alignment, lower, own.approximate);
  }
  if (op.is(kProduct)) return internal::product_operation(op, attrs, in, out, gpu, alignment, options);
  if (op.is(kAttention) && in[0].dtype != kFloat64)
    return internal::attention_operation(op, attrs, in, out, gpu, alignment, options);
  if (&op == &debug_print_op) return std::make_unique<PrintOperation>(op, attrs, in[0], out[0]);
  // These kernels take numbers as parameters. In a group numbers are part of the text, and eager programs would compile
  // a kernel for each new number.
  if (op.is(kFromAttrs))
    if (std::unique_ptr<DeviceOperation> own = make_op(op, attrs, in, out, gpu, alignment)) return own;
  const Ref<Graph> body = body_of_one(op, attrs, in, out);
  const Node& node = body->node(body->outputs[0]);
  if (loop_ir::can_fuse(node) && loop_ir::cannot_lower(*body).empty())
    return group_operation(op.name, *body, in, out, gpu, alignment, lower);
  if (std::unique_ptr<DeviceOperation> own = make_op(op, attrs, in, out, gpu, alignment)) return own;
  // The driver moves types that no kernel supports.
  if (&op == &contiguous_op) return std::make_unique<CopyOperation>(in[0], out[0]);
  if (op.view) {
    Shape strides;
    int64_t offset = 0;
    if (op.view(attrs, in[0], {out[0].dtype, Device::cpu(), out[0].shape}, &strides, &offset)) {
      StridedView from{nullptr, in[0].dtype, out[0].shape, strides};
      return std::make_unique<CopyOperation>(from, out[0]);
    }
  }
  if (op.decompose) return internal::decomposed_operation(op, attrs, in, out, gpu, alignment, options);
  WEFT_CHECK_AS(kUnavailable, false, op.name, ": CUDA has no kernel for this op on ",
                in.empty() ? out[0].dtype : in[0].dtype, " yet; run it on the CPU");
}

}  // namespace weft::cuda
