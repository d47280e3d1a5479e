// Ops defined by others: the operations of these one after another, with their values in scratch; one group where loop
// IR takes them all.
#pragma once
#include <memory>

#include "compiler/targets/cuda/run/operation.h"

namespace weft::cuda::internal {

/// The operation of op.decompose. Throws as prepare() does for the ops inside.
std::unique_ptr<Operation> decomposed_operation(const OpDef& op, const Attrs& attrs, std::span<const StridedView> in,
                                                std::span<const StridedView> out, const GpuProperties& gpu,
                                                int alignment, const PrepareOptions& options);

/// The operation of `body`, which has one node or more and no fused ones, under the name of an op.
std::unique_ptr<Operation> graph_operation(const char* name, const Graph& body, std::span<const StridedView> in,
                                           std::span<const StridedView> out, const GpuProperties& gpu, int alignment,
                                           const PrepareOptions& options);

}  // namespace weft::cuda::internal
