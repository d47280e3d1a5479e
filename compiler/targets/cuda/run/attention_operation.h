// Attention and its backward on a GPU, with the kernels of compiler/targets/cuda/attention.
#pragma once
#include <memory>

#include "compiler/targets/cuda/run/operation.h"

namespace weft::cuda::internal {

/// The operation of attention or attention_backward in f32, bf16 or f16.
std::unique_ptr<DeviceOperation> attention_operation(const OpDef& op, const Attrs& attrs,
                                                     std::span<const StridedView> in, std::span<const StridedView> out,
                                                     const GpuProperties& gpu, int alignment,
                                                     const OperationOptions& options);

}  // namespace weft::cuda::internal
