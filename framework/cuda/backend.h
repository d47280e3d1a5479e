// CUDA behind eager ops and tensors: memory and copies are here, the kernels of ops come from the compiler, above.
#pragma once
#include "framework/dispatch/dispatch.h"

namespace weft::cuda {

/// Runs one op on a GPU: operands and results are device memory; work is queued on Gpu::of(device).stream() without
/// waiting for it.
struct OpRunner {
  virtual ~OpRunner() = default;
  virtual void run_op(const KernelCall& call, Device device, SourceLine line) = 0;
  /// After a value of the device was read: throws what queued work has found wrong (an index out of range).
  virtual void look(Device device) { static_cast<void>(device); }
};

/// Makes CUDA the backend of Device::cuda(i) for the process; `runner` (kept by the caller) may be null: then ops say
/// that nothing runs them. May be called on any machine: where there is no CUDA, using the device says why. Returns the
/// runner it replaces.
OpRunner* install_backend(OpRunner* runner);

}  // namespace weft::cuda
