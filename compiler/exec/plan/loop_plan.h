// The operation of a loop: its body is planned once, and its calls get places relative to the loop's operands.
#pragma once
#include "framework/dispatch/device/target.h"

namespace weft::internal {

class Operations;

/// The operation of a `loop` node with operands and results of these layouts. The body is a fused graph.
std::shared_ptr<Operation> prepare_loop(const Attrs& attrs, std::span<const StridedView> in,
                                        std::span<const StridedView> out, Operations& operations);

}  // namespace weft::internal
