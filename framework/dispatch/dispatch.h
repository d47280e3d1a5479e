// The one door for ops: infers types once, then runs the kernel (eager), appends a node (capture), or both records
// and runs (eager with gradients).
#pragma once
#include "framework/dispatch/state.h"
#include "framework/ir/graph.h"
#include "framework/ir/op_def.h"

namespace weft {

using TensorPtrs = std::span<const Tensor* const>;

/// Calls an op with one result.
Tensor dispatch(const OpDef& op, TensorPtrs in, const Attrs& attrs = {}, SourceLine line = {});
inline Tensor dispatch(const OpDef& op, std::initializer_list<const Tensor*> in, const Attrs& attrs = {},
                       SourceLine line = {}) {
  return dispatch(op, TensorPtrs(in.begin(), in.size()), attrs, line);
}
/// Calls an op with any number of results.
std::vector<Tensor> dispatch_multi(const OpDef& op, TensorPtrs in, const Attrs& attrs = {}, SourceLine line = {});

/// Calls a pointwise op whose result type the front end already knows (operands checked and promoted by it).
Tensor dispatch_pointwise(const OpDef& op, TensorPtrs in, const TensorType& type, SourceLine line);

/// Device work behind eager ops. The CPU needs none of it (kernels of records run directly); CUDA brings its own.
struct Backend : DeviceMemory {
  /// Runs one op; operands and outputs are on `device`. `line` is the user's, where known.
  virtual void run_op(const KernelCall& call, Device device, SourceLine line) = 0;
};
/// The backend of a device type or null; cpu and meta have none.
Backend* backend(DeviceType type);
void set_backend(DeviceType type, Backend* b);

namespace internal {
/// The views, allocations and kernel of one eager call, without recording.
void run_eager(const OpDef& op, TensorPtrs in, const Attrs& attrs, std::span<const TensorType> types,
               std::span<Tensor> out, SourceLine line = {});
}  // namespace internal

}  // namespace weft
