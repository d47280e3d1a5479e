// The rate of fused causal attention kernels on GPUs. It differs from the rate of matrix products: exponentials, the
// diagonal of the mask and short sequences cost time while the product units wait.
#pragma once
#include <string>

#include "compiler/cost/machine/machine.h"

namespace weft::planner {

/// Kernels whose rates are known: Weft's own, cuDNN's, and FlashAttention 2 (without the instructions of Hopper).
enum class AttentionKernel : uint8_t { kWeft, kCudnn, kFlash2 };
/// The kernel named "weft", "cudnn" or "flash2". Throws InvalidArgument for other names.
AttentionKernel attention_kernel(const std::string& name);

/// Operations per second of products in causal attention with 16-bit operands, 2.5 times the forward's in backward
/// (Dao 2023). The share of the peak was measured on an H100 at 8192 tokens with heads of 128 and at 1024 tokens with
/// heads of 64 (docs/gpu.md); between and beyond these points, it follows the curve over lengths of FlashAttention-3
/// (Shah et al. 2024, figures 5 and 6). Other GPUs are assumed to reach the same share of their peak. Returns 0 for a
/// CPU, where attention is as fast as products.
double attention_rate(const Machine& machine, AttentionKernel kernel, double length, double head_dim, bool backward);

}  // namespace weft::planner
