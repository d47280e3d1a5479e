#include "compiler/cuda/exec/attention_operation.h"

#include "compiler/cuda/attention/program.h"
#include "framework/base/error.h"
#include "ops/attention/record.h"

namespace weft::cuda::internal {
namespace {

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
      l.parameters = &a.params;
      l.parameter_bytes = sizeof a.params;
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
                                               const PrepareOptions& options) {
  AttentionOptions o;
  o.tf32 = options.tf32;
  o.sm90a = gpu.sm == 90;
  return std::make_unique<AttentionOperation>(op, attrs, in, out, o);
}

}  // namespace weft::cuda::internal
