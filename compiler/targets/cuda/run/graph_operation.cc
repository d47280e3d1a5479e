#include "compiler/targets/cuda/run/graph_operation.h"

#include <algorithm>

#include "compiler/loop_ir/domain.h"
#include "compiler/targets/cuda/run/fused_operation.h"
#include "framework/base/error.h"
#include "framework/dispatch/capture.h"
#include "ops/core/indexing/view.h"

namespace weft::cuda::internal {
namespace {

// Where a value is stored.
struct ValueBuffer {
  enum BufferKind : uint8_t { kNone, kIn, kOut, kScratch } kind = kNone;
  int index = 0;       // index of the operand or result
  int64_t offset = 0;  // in bytes
};

class SequenceOperation final : public DeviceOperation {
 public:
  SequenceOperation(const char* name, const Graph& g, std::span<const StridedView> in, std::span<const StridedView> out,
                    const GpuProperties& gpu, int alignment, const OperationOptions& options) {
    WEFT_CHECK_AS(kUnavailable, g.captured.empty() && g.cells.empty(), name,
                  ": its definition captures tensors or cells; CUDA has no kernel for it yet");
    std::vector<std::vector<StridedView>> views(g.size());
    std::vector<std::vector<ValueBuffer>> buffers(g.size());
    for (int32_t id = 0; id < g.size(); ++id) {
      const Node& n = g.node(id);
      for (const TensorType& t : n.outputs)
        views[id].push_back({nullptr, t.dtype, t.shape, contiguous_strides(t.shape)});
      buffers[id].resize(n.outputs.size());
      if (is_argument(n)) {
        const int i = static_cast<int>(n.attrs.i("index"));
        views[id][0] = in[i];
        buffers[id][0] = {ValueBuffer::kIn, i, 0};
        continue;
      }
      std::vector<StridedView> operands;
      std::vector<ValueBuffer> at;
      for (Value v : n.inputs) {
        operands.push_back(views[v.node][v.index]);
        at.push_back(buffers[v.node][v.index]);
      }
      if (n.op->view) {
        Shape strides;
        int64_t offset = 0;
        if (n.op->view(n.attrs, operands[0], n.outputs[0], &strides, &offset)) {
          views[id][0].strides = strides;
          buffers[id][0] = at[0];
          buffers[id][0].offset += offset * itemsize(n.outputs[0].dtype);
          continue;
        }
      }
      for (size_t i = 0; i < n.outputs.size(); ++i) {
        buffers[id][i] = {ValueBuffer::kScratch, 0, workspace_};
        for (size_t k = 0; k < g.outputs.size(); ++k)
          if (g.outputs[k] == Value{id, static_cast<int32_t>(i)}) {
            buffers[id][i] = {ValueBuffer::kOut, static_cast<int>(k), 0};
            views[id][i] = out[k];
            break;
          }
        if (buffers[id][i].kind == ValueBuffer::kScratch) workspace_ += round_to_256(views[id][i].nbytes());
      }
      add(prepare(*n.op, n.attrs, operands, views[id], gpu, least(alignment, at), options), at, buffers[id]);
    }
    // Copy results that are views, operands, or repeated.
    for (size_t k = 0; k < g.outputs.size(); ++k) {
      const Value v = g.outputs[k];
      const ValueBuffer& buffer = buffers[v.node][v.index];
      if (buffer.kind == ValueBuffer::kOut && buffer.index == static_cast<int>(k)) continue;
      const StridedView from[] = {views[v.node][v.index]}, to[] = {out[k]};
      add(prepare(contiguous_op, {}, from, to, gpu, least(alignment, {buffer}), options), {buffer},
          {{ValueBuffer::kOut, static_cast<int>(k), 0}});
    }
    step_scratch_ = workspace_;
    workspace_ += most_scratch_;
  }

  std::span<const Kernel> kernels() const override { return kernels_; }
  void bind(std::span<const Function> functions) override {
    for (OperationStep& s : steps_) s.operation->bind(functions.subspan(s.first, s.operation->kernels().size()));
  }
  int64_t workspace_bytes() const override { return workspace_; }
  bool checks_indices() const override { return checks_; }
  bool capturable() const override {
    return std::all_of(steps_.begin(), steps_.end(), [](const OperationStep& s) { return s.operation->capturable(); });
  }

  void enqueue(const Addresses& at, Stream& stream, SourceLine line) const override {
    auto address = [&](const ValueBuffer& h) -> void* {
      char* base = h.kind == ValueBuffer::kIn    ? static_cast<char*>(at.in[h.index])
                   : h.kind == ValueBuffer::kOut ? static_cast<char*>(at.out[h.index])
                                                 : static_cast<char*>(at.workspace);
      return base + h.offset;
    };
    for (const OperationStep& s : steps_) {
      SmallVec<void*, 8> in, out;
      for (const ValueBuffer& h : s.in) in.push_back(address(h));
      for (const ValueBuffer& h : s.out) out.push_back(address(h));
      s.operation->enqueue({{in.data(), static_cast<size_t>(in.size())},
                            {out.data(), static_cast<size_t>(out.size())},
                            static_cast<char*>(at.workspace) + step_scratch_,
                            at.bad},
                           stream, line);
    }
  }

 private:
  struct OperationStep {
    std::unique_ptr<DeviceOperation> operation;
    size_t first;  // index of its first kernel
    std::vector<ValueBuffer> in, out;
  };

  // The alignment of operands that start inside other values.
  static int least(int alignment, const std::vector<ValueBuffer>& at) {
    for (const ValueBuffer& h : at)
      while (h.offset % alignment != 0) alignment /= 2;
    return alignment;
  }
  void add(std::unique_ptr<DeviceOperation> operation, std::vector<ValueBuffer> in, std::vector<ValueBuffer> out) {
    most_scratch_ = std::max(most_scratch_, round_to_256(operation->workspace_bytes()));
    checks_ |= operation->checks_indices();
    const size_t first = kernels_.size();
    kernels_.insert(kernels_.end(), operation->kernels().begin(), operation->kernels().end());
    steps_.push_back({std::move(operation), first, std::move(in), std::move(out)});
  }

  std::vector<Kernel> kernels_;
  std::vector<OperationStep> steps_;
  int64_t workspace_ = 0, most_scratch_ = 0, step_scratch_ = 0;
  bool checks_ = false;
};

}  // namespace

std::unique_ptr<DeviceOperation> decomposed_operation(const OpDef& op, const Attrs& attrs,
                                                      std::span<const StridedView> in, std::span<const StridedView> out,
                                                      const GpuProperties& gpu, int alignment,
                                                      const OperationOptions& options) {
  std::vector<TensorType> types;
  for (const StridedView& v : in) types.push_back({v.dtype, Device::cpu(), v.shape});
  const Ref<Graph> body = capture_graph([&](std::span<const Tensor> x) { return op.decompose(attrs, x); }, types);
  return graph_operation(op.name, *body, in, out, gpu, alignment, options);
}

std::unique_ptr<DeviceOperation> graph_operation(const char* name, const Graph& body, std::span<const StridedView> in,
                                                 std::span<const StridedView> out, const GpuProperties& gpu,
                                                 int alignment, const OperationOptions& options) {
  bool one_group = body.captured.empty() && body.cells.empty();
  for (int32_t id = 0; id < body.size(); ++id) {
    const Node& n = body.node(id);
    one_group &= is_argument(n) || (!loop_ir::is_product(n) && loop_ir::can_fuse(n));
  }
  if (one_group && loop_ir::cannot_lower(body).empty()) {
    loop_ir::LowerOptions lower;
    lower.round_like_eager = true;  // the definition contains the op's own roundings
    return group_operation(name, body, in, out, gpu, alignment, lower);
  }
  return std::make_unique<SequenceOperation>(name, body, in, out, gpu, alignment, options);
}

}  // namespace weft::cuda::internal
