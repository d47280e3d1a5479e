#include "compiler/targets/cuda/run/attention_operation.h"

#include <cstring>
#include <optional>

#include "compiler/targets/cuda/attention/program.h"
#include "framework/base/error.h"
#include "framework/cuda/libraries/driver_api.h"
#include "framework/cuda/libraries/driver_error.h"
#include "ops/attention/record.h"
#include "ops/core/core.h"

namespace weft::cuda::internal {
namespace {

void encode(const AttentionMap& m, CUtensorMap* to) {
  const uint32_t each[4] = {1, 1, 1, 1};
  check(driver().cuTensorMapEncodeTiled(to, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4, m.base, m.extents, m.strides, m.box,
                                        each, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
        "attention: a tensor map of [", m.extents[3], ", ", m.extents[2], ", ", m.extents[1], ", ", m.extents[0], "]");
}

int64_t up_to_256(int64_t n) { return (n + 255) / 256 * 256; }

/// Kernels need contiguous rows of [B, H, S, D] operands, and contiguous arrays of all others.
bool must_be_copied(const StridedView& v, size_t operand, size_t own, bool backward) {
  const bool rows = operand < 3 || (backward && (operand == own || operand == own + 3));
  return rows ? v.shape[3] > 1 && v.strides[3] != 1 : !v.contiguous();
}

class AttentionOperation final : public DeviceOperation {
 public:
  AttentionOperation(const OpDef& op, const Attrs& attrs, std::span<const StridedView> in,
                     std::span<const StridedView> out, const GpuProperties& gpu, int alignment,
                     const AttentionKernelOptions& options, const OperationOptions& prepared)
      : name_(op.name), in_(in.begin(), in.end()), out_(out.begin(), out.end()) {
    const bool backward = &op == &attention_backward_op;
    const size_t own = static_cast<size_t>(weft::internal::AttentionOperands(attrs).count);
    for (size_t i = 0; i < in_.size(); ++i) {
      in_[i].data = nullptr;
      if (!must_be_copied(in_[i], i, own, backward)) continue;
      StridedView plain = in_[i];
      plain.strides = contiguous_strides(plain.shape);
      copies_.push_back({i, 0, 0, prepare(contiguous_op, {}, {&in_[i], 1}, {&plain, 1}, gpu, alignment, prepared)});
      in_[i] = plain;
    }
    program_.emplace(attrs, in_, out_, backward, options);
    kernels_.assign(program_->kernels().begin(), program_->kernels().end());
    workspace_ = up_to_256(program_->workspace(in_));
    for (Copy& c : copies_) {
      WEFT_BUG_IF(c.operation->workspace_bytes() > 0, name_, ": a copy needs scratch memory");
      c.first = kernels_.size();
      kernels_.insert(kernels_.end(), c.operation->kernels().begin(), c.operation->kernels().end());
      c.at = workspace_;
      workspace_ += up_to_256(in_[c.operand].nbytes());
    }
  }

  std::span<const Kernel> kernels() const override { return kernels_; }
  void bind(std::span<const Function> functions) override {
    functions_.assign(functions.begin(), functions.end());
    for (Copy& c : copies_) c.operation->bind(functions.subspan(c.first, c.operation->kernels().size()));
  }
  int64_t workspace_bytes() const override { return workspace_; }

  void enqueue(const Addresses& at, Stream& stream, SourceLine line) const override {
    std::vector<StridedView> in = in_, out = out_;
    for (size_t i = 0; i < in.size(); ++i) in[i].data = at.in[i];
    for (size_t i = 0; i < out.size(); ++i) out[i].data = at.out[i];
    for (const Copy& c : copies_) {
      void* const to = static_cast<char*>(at.workspace) + c.at;
      c.operation->enqueue({.in = {&at.in[c.operand], 1}, .out = {&to, 1}, .bad = at.bad}, stream, line);
      in[c.operand].data = to;
    }
    for (const AttentionLaunch& a : program_->launches(in, out, at.workspace)) {
      const Kernel& k = kernels_[static_cast<size_t>(a.kernel)];
      KernelLaunch l{a.grid.x, a.grid.y, a.grid.z, k.threads, k.shared_bytes, &a.params, sizeof a.params, name_, line};
      alignas(64) std::byte with_maps[kAttentionMapsAt + kMostAttentionMaps * sizeof(CUtensorMap)];
      if (!a.maps.empty()) {
        std::memcpy(with_maps, &a.params, sizeof a.params);
        for (size_t i = 0; i < a.maps.size(); ++i)
          encode(a.maps[i], reinterpret_cast<CUtensorMap*>(with_maps + kAttentionMapsAt) + i);
        l.parameters = with_maps;
        l.parameter_bytes = kAttentionMapsAt + a.maps.size() * sizeof(CUtensorMap);
      }
      functions_.at(static_cast<size_t>(a.kernel)).launch(stream, l);
    }
  }

 private:
  /// An operand copied to the workspace, where it is contiguous.
  struct Copy {
    size_t operand;
    size_t first;  // index of its first kernel
    int64_t at;
    std::unique_ptr<DeviceOperation> operation;
  };
  const char* name_;
  std::vector<StridedView> in_, out_;
  std::vector<Copy> copies_;
  std::optional<AttentionProgram> program_;
  std::vector<Kernel> kernels_;
  int64_t workspace_ = 0;
  std::vector<Function> functions_;
};

}  // namespace

std::unique_ptr<DeviceOperation> attention_operation(const OpDef& op, const Attrs& attrs,
                                                     std::span<const StridedView> in, std::span<const StridedView> out,
                                                     const GpuProperties& gpu, int alignment,
                                                     const OperationOptions& options) {
  AttentionKernelOptions o;
  o.alignment = alignment;
  o.tf32 = options.tf32;
  o.sm90a = o.maps = gpu.kernel_sm() == 90;
  return std::make_unique<AttentionOperation>(op, attrs, in, out, gpu, alignment, o, options);
}

}  // namespace weft::cuda::internal
