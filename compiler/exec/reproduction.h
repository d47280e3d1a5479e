// A file that shows a kernel's wrong result on its own: its text, its operands and what they should give.
#pragma once
#include <string>
#include <vector>

#include "compiler/exec/error_bounds.h"
#include "compiler/exec/fused_kernel.h"

namespace weft::internal {

/// Writes it and says where: "reproduction: /tmp/....cc", or why there is none.
std::string write_reproduction(const FusedKernel& k, const Graph& body, std::span<const Tensor> in,
                               std::span<const BoundedValue> want);

}  // namespace weft::internal
