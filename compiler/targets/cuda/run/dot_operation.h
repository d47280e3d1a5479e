// Products on a GPU, alone or in a fused body. First, operands that the body computes are stored in scratch memory.
// Then cuBLASLt, or a kernel of ours (grouped products, integers), computes the product. Last comes the epilogue.
#pragma once
#include <memory>

#include "compiler/targets/cuda/run/operation.h"

namespace weft::cuda::internal {

/// The operation of dot or grouped_dot.
std::unique_ptr<DeviceOperation> product_operation(const OpDef& op, const Attrs& attrs, std::span<const StridedView> in,
                                                   std::span<const StridedView> out, const GpuProperties& gpu,
                                                   int alignment, const OperationOptions& options);

/// The operation of a fused body with one product.
std::unique_ptr<DeviceOperation> fused_product_operation(const char* name, const Graph& body,
                                                         std::span<const StridedView> in,
                                                         std::span<const StridedView> out, const GpuProperties& gpu,
                                                         int alignment, const OperationOptions& options);

}  // namespace weft::cuda::internal
