// A product and the ops after it as one kernel: the ops read the sums from the tile, and the product is never stored in
// memory. The results have the same bits as a product stored as f32, followed by the group.
#pragma once
#include <optional>

#include "compiler/targets/cuda/gemm/gemm.h"
#include "compiler/targets/cuda/print/plan.h"

namespace weft::cuda {

/// The launch of a lowered group with a product (Lowered::dot) whose results have the layouts `out`. `product` is the
/// product with an f32 result, from plan_dot's shape or grouped_problem. Pointers to operands with indices from
/// low.bound.size() on are the product's a, b and offsets; kBad is always read. Empty if the group is not elementwise
/// on f32 sums.
std::optional<CudaLaunch> fused_product(const loop_ir::Lowered& low, std::span<const loop_ir::ValueLayout> out,
                                        const GroupedGemm& product, int sm, const DeviceLimits& device = {},
                                        const KernelTextOptions& options = {});

}  // namespace weft::cuda
