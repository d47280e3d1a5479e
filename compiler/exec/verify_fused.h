// Verified fusion: a kernel's first result against the nodes of its body, one by one through eager kernels. Equal bits,
// unless the kernel keeps 16-bit values in f32; then within the bounds of error_bounds.h.
#pragma once
#include <string>

#include "compiler/exec/executable.h"

namespace weft::internal {

/// Copies of a launch's operands, for the time after it, when it may have overwritten them.
std::vector<Tensor> set_aside(std::span<const StridedView> in);

/// Throws kInternal naming the kernel, its ops, the first element that differs and the file with a reproduction that
/// builds alone. `in` holds the operands from before the launch, `out` what it wrote.
void verify_fused(const FusedKernel& k, const Graph& body, std::span<const Tensor> in,
                  std::span<const StridedView> out);

/// The two above, for Executable.
extern const FusedCheck fused_check;

/// True if launches are checked where nobody asked: in tests, unless WEFT_VERIFY is 0.
bool verifies_kernels();

/// "add, mul at model.cc:12; tanh at model.cc:14": the ops of a body by the user's line, at most `lines` of them.
std::string ops_text(const Graph& body, size_t lines = 100);

}  // namespace weft::internal
