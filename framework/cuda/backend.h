// CUDA behind eager ops and tensors: memory and copies are here, the kernels of ops come from the compiler, above.
#pragma once
#include <memory>

#include "framework/dispatch/dispatch.h"

namespace weft::cuda {

/// A look at what queued work has found wrong that travels to the host behind it.
struct QueuedLook {
  virtual ~QueuedLook() = default;
  /// To be called once the copies queued with it have arrived: throws as OpRunner::look does. Not called, the next look
  /// finds it.
  virtual void judge() = 0;
};

/// Runs one op on a GPU: operands and results are device memory; work is queued on Gpu::of(device).stream() without
/// waiting for it.
struct OpRunner {
  virtual ~OpRunner() = default;
  virtual void run_op(const KernelCall& call, Device device, SourceLine line) = 0;
  /// After a value of the device was read: throws what queued work has found wrong (an index out of range).
  virtual void look(Device device) { static_cast<void>(device); }
  /// The same without waiting, for a value whose copy to the host is being queued; null if there is nothing to look at.
  virtual std::unique_ptr<QueuedLook> queue_look(Device device) {
    static_cast<void>(device);
    return {};
  }
};

/// Makes CUDA the backend of Device::cuda(i) for the process; `runner` (kept by the caller) may be null: then ops say
/// that nothing runs them. May be called on any machine: where there is no CUDA, using the device says why. Returns the
/// runner it replaces.
OpRunner* install_backend(OpRunner* runner);

}  // namespace weft::cuda
