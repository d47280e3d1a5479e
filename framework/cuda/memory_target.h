// MemoryTarget: memory, copies and queued reads of GPUs. The compiler's CudaTarget adds the kernels.
#pragma once
#include <memory>

#include "framework/dispatch/device/target.h"

namespace weft::cuda {

/// The error flags of queued work, copied to the host after the work.
struct QueuedLook {
  virtual ~QueuedLook() = default;
  /// Throws as MemoryTarget::look does. Call it once the copies queued with it have arrived. If nobody calls it, the
  /// next look finds the errors.
  virtual void judge() = 0;
};

/// Cheap to make on any machine: where there is no CUDA, the first use of a device says why.
class MemoryTarget : public Target {
 public:
  Allocator& allocator(Device device) override;
  void copy(const StridedView& from, Device from_device, const StridedView& to, Device to_device) override;
  std::unique_ptr<QueuedRead> queue_read(Device device, std::span<const StridedView> from,
                                         std::span<const StridedView> to) override;
  void set_name(Device device, const void* p, const std::string& name) override;
  TargetLimits limits() const override;

  // There are no kernels here: all throw Unimplemented.
  std::shared_ptr<weft::Operation> prepare(Device, const OpDef& op, const Attrs&, std::span<const StridedView>,
                                           std::span<const StridedView>, int, const weft::PrepareOptions&) override;
  LoadReport compile(Device, std::span<const std::shared_ptr<weft::Operation>>, const LoadOptions&) override;
  void run_now(const KernelCall& call, Device device, SourceLine line) override;
  std::unique_ptr<Replay> replay(Device, std::span<const StepCall>, ReplayOptions) override;

 protected:
  /// Called after a value of the device was read: throws the errors that queued work has found (a bad index).
  virtual void look(Device device) { static_cast<void>(device); }
  /// The same without a wait, for a value whose copy to the host is being queued; null if there is nothing to look at.
  virtual std::unique_ptr<QueuedLook> queue_look(Device device) {
    static_cast<void>(device);
    return {};
  }
};

/// The target of GPUs without kernels, for programs that only move values.
MemoryTarget& memory_target();

}  // namespace weft::cuda
