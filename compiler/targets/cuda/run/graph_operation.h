// Ops defined by other ops: one fused group if the loop IR can lower it, else a sequence of operations with their
// values in scratch memory.
#pragma once
#include <memory>

#include "compiler/targets/cuda/run/operation.h"

namespace weft::cuda::internal {

/// The operation of op.decompose. Throws the errors of prepare() for the ops inside.
std::unique_ptr<DeviceOperation> decomposed_operation(const OpDef& op, const Attrs& attrs,
                                                      std::span<const StridedView> in, std::span<const StridedView> out,
                                                      const GpuProperties& gpu, int alignment,
                                                      const OperationOptions& options);

/// The operation of `body`, which has at least one node and no fused nodes. `name`: the op, for errors.
std::unique_ptr<DeviceOperation> graph_operation(const char* name, const Graph& body, std::span<const StridedView> in,
                                                 std::span<const StridedView> out, const GpuProperties& gpu,
                                                 int alignment, const OperationOptions& options);

}  // namespace weft::cuda::internal
