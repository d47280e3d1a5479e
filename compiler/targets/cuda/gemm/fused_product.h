// A product and the group of ops behind it as one kernel: the ops take the sums out of the tile, and the product itself
// never is in memory. The bits are those of the product written as f32 and the group run on it.
#pragma once
#include <optional>

#include "compiler/targets/cuda/gemm/gemm.h"
#include "compiler/targets/cuda/print/plan.h"

namespace weft::cuda {

/// The launch of a lowered group with a product (Lowered::dot) whose results lie as `out`; `product` is the product
/// with an f32 result, as plan_dot's shape or grouped_problem tell it. Pointers to operands with indices from
/// low.bound.size() on are the product's a, b and offsets; kBad is always read. none where the group is none that works
/// element by element on f32 sums.
std::optional<CudaLaunch> fused_product(const loop_ir::Lowered& low, std::span<const loop_ir::Layout> out,
                                        const GroupedGemm& product, int sm, const DeviceLimits& device = {},
                                        const PlanOptions& options = {});

}  // namespace weft::cuda
