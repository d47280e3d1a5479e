// NVIDIA GPUs as a target: operations are kernels compiled by NVRTC and products of cuBLASLt. Eager calls and steps are
// queued on the GPU's stream; a step is replayed as one CUDA graph. Nothing waits for the device until a value is read.
#pragma once
#include "framework/cuda/memory_target.h"

namespace weft::cuda {

class CudaTarget : public MemoryTarget {
 public:
  bool may_spread(const Node& n) const override;
  std::shared_ptr<Operation> prepare(Device device, const OpDef& op, const Attrs& attrs,
                                     std::span<const StridedView> in, std::span<const StridedView> out, int alignment,
                                     const weft::PrepareOptions& options) override;
  LoadReport compile(Device device, std::span<const std::shared_ptr<Operation>> operations,
                     const LoadOptions& options) override;
  void run_now(const KernelCall& call, Device device, SourceLine line) override;
  std::unique_ptr<Replay> replay(Device device, std::span<const StepCall> calls, ReplayOptions options) override;
  Agreement agreement(const Operation& operation, const Node& n, const weft::PrepareOptions& options) const override;
  std::string dump(const Operation& operation, const std::string& folder) const override;

 protected:
  void look(Device device) override;
  std::unique_ptr<QueuedLook> queue_look(Device device) override;
};

/// The target of GPUs, which weft.cc registers. Cheap, and allowed on any machine: without CUDA, the first use of a
/// device reports the reason.
CudaTarget& cuda_target();

}  // namespace weft::cuda
