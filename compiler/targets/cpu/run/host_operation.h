// Operations on the CPU, and the target that runs them. Steps compiled ahead of time link these without passes, printer
// and compiler; the full CPU target (compiler/targets/cpu/target.h) adds those.
#pragma once
#include "framework/dispatch/device/target.h"

namespace weft::internal {

/// An operation whose operands and results are in host memory.
class HostOperation : public Operation {
 public:
  /// The views have addresses and the prepared layouts. Runs may overlap, each with its own workspace.
  virtual void run(std::span<const StridedView> in, std::span<const StridedView> out, void* workspace) const = 0;
};

/// Runs operations that were prepared before, and the kernels of op records.
class HostTarget : public Target {
 public:
  TargetLimits limits() const override { return {.loops = true}; }
  Allocator& allocator(Device device) override;
  void copy(const StridedView& from, Device from_device, const StridedView& to, Device to_device) override;
  bool may_spread(const Node&) const override { return true; }
  bool prepares_at_once(const OpDef& op) const override;
  /// The kernel of the op's record. Fused nodes need the full CPU target: throws Unavailable.
  std::shared_ptr<Operation> prepare(Device device, const OpDef& op, const Attrs& attrs,
                                     std::span<const StridedView> in, std::span<const StridedView> out, int alignment,
                                     const PrepareOptions& options) override;
  std::shared_ptr<Operation> repeat(LoopCalls calls) override;
  LoadReport compile(Device, std::span<const std::shared_ptr<Operation>>, const LoadOptions&) override { return {}; }
  void run_now(const KernelCall& call, Device device, SourceLine line) override;
  std::unique_ptr<Replay> replay(Device device, std::span<const StepCall> calls, ReplayOptions options) override;
};

/// The target of steps compiled ahead of time.
HostTarget& host_target();

}  // namespace weft::internal
