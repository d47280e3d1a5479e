#include "compiler/cuda/exec/attention_operation.h"

#include <cstring>

#include "compiler/cuda/attention/program.h"
#include "framework/base/error.h"
#include "framework/cuda/driver_error.h"
#include "ops/attention/record.h"

namespace weft::cuda::internal {
namespace {

static_assert(sizeof(CUtensorMap) == 128);

CUtensorMap encoded(const AttentionMap& m, DType type) {
  CUtensorMap map;
  const uint32_t steps[] = {1, 1, 1, 1};
  check(driver().cuTensorMapEncodeTiled(&map, type == kBFloat16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                                        4, m.base, m.extents, m.strides, m.box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                        CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
        "describing an operand of attention for TMA");
  return map;
}

class AttentionOperation final : public Operation {
 public:
  AttentionOperation(const OpDef& op, const Attrs& attrs, std::span<const StridedView> in, std::span<const StridedView> out,
                     const AttentionOptions& options)
      : name_(op.name),
        in_(in.begin(), in.end()),
        out_(out.begin(), out.end()),
        program_(attrs, in, out, &op == &attention_backward_op, options),
        workspace_(program_.workspace(in)) {}

  std::span<const Kernel> kernels() const override { return program_.kernels(); }
  void bind(std::span<const Function> functions) override { functions_.assign(functions.begin(), functions.end()); }
  int64_t workspace_bytes() const override { return workspace_; }

  void enqueue(const Addresses& at, Stream& stream, SourceLine line) const override {
    std::vector<StridedView> in = in_, out = out_;
    for (size_t i = 0; i < in.size(); ++i) in[i].data = at.in[i];
    for (size_t i = 0; i < out.size(); ++i) out[i].data = at.out[i];
    const std::span<const Kernel> kernels = program_.kernels();
    for (const AttentionLaunch& a : program_.launches(in, out, at.workspace)) {
      const Kernel& k = kernels[a.kernel];
      Launch l;
      l.grid_x = a.grid.x;
      l.grid_y = a.grid.y;
      l.grid_z = a.grid.z;
      l.threads = k.threads;
      l.shared_bytes = k.shared_bytes;
      alignas(64) char with_maps[4096];
      l.parameters = &a.params;
      l.parameter_bytes = sizeof a.params;
      if (!a.maps.empty()) {
        l.parameters = with_maps;
        l.parameter_bytes = kAttentionMapsAt + sizeof(CUtensorMap) * a.maps.size();
        WEFT_BUG_IF(l.parameter_bytes > sizeof with_maps, name_, ": ", l.parameter_bytes, " bytes of parameters");
        std::memset(with_maps, 0, l.parameter_bytes);
        std::memcpy(with_maps, &a.params, sizeof a.params);
        for (size_t i = 0; i < a.maps.size(); ++i) {
          const CUtensorMap map = encoded(a.maps[i], in[0].dtype);
          std::memcpy(with_maps + kAttentionMapsAt + sizeof map * i, &map, sizeof map);
        }
      }
      l.op = name_;
      l.line = line;
      functions_.at(a.kernel).launch(stream, l);
    }
  }

 private:
  const char* name_;
  std::vector<StridedView> in_, out_;
  AttentionProgram program_;
  int64_t workspace_;
  std::vector<Function> functions_;
};

}  // namespace

std::unique_ptr<Operation> attention_operation(const OpDef& op, const Attrs& attrs, std::span<const StridedView> in,
                                               std::span<const StridedView> out, const GpuProperties& gpu,
                                               int alignment, const PrepareOptions& options) {
  AttentionOptions o;
  o.tf32 = options.tf32;
  o.sm90a = o.maps = gpu.sm == 90;
  // The program looks at addresses for what they are multiples of.
  auto placed = [&](std::span<const StridedView> views) {
    std::vector<StridedView> all(views.begin(), views.end());
    for (StridedView& v : all) v.data = reinterpret_cast<void*>(static_cast<uintptr_t>(alignment));
    return all;
  };
  return std::make_unique<AttentionOperation>(op, attrs, placed(in), placed(out), o);
}

}  // namespace weft::cuda::internal
