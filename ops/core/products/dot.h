// Contractions: products summed over shared dims. All functions here become `dot` or `grouped_dot`.
#pragma once
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "framework/dispatch/arg.h"
#include "framework/ir/op_def.h"

namespace weft {

/// PyTorch's matmul: matrices in the last two dims, batch dims broadcast, vectors as rows or columns.
Tensor matmul(const Arg& a, const Arg& b);
/// Matrices [M, K] x [K, N].
Tensor mm(const Arg& a, const Arg& b);
/// Batches [B, M, K] x [B, K, N].
Tensor bmm(const Arg& a, const Arg& b);
/// x[..., in] times the transpose of weight[out, in], plus bias[out] if defined; both are converted to x's dtype. A
/// weight[in] gives x[...], with a 0-d bias.
Tensor linear(const Arg& x, const Arg& weight, const Arg& bias = Tensor());
/// Einstein summation over any number of operands, as PyTorch's: einsum("bqd,bkd->bqk", {q, k}). "..." stands for
/// further dims, which are broadcast; a letter that occurs twice in one operand is its diagonal ("ii->i"). Extents of 1
/// are broadcast. Throws InvalidArgument if a letter has two other extents.
Tensor einsum(std::string_view equation, const std::vector<Tensor>& operands,
              std::source_location loc = std::source_location::current());
inline Tensor einsum(std::string_view equation, const Tensor& a, const Tensor& b,
                     std::source_location loc = std::source_location::current()) {
  return einsum(equation, std::vector<Tensor>{a, b}, loc);
}
/// y[rows of e] = x[rows of e] x w[e] for x[T, K], w[E, K, N]. Group e is rows offsets[e] to offsets[e + 1] (integers
/// [E + 1], ascending). Rows outside all groups give zeros.
Tensor grouped_matmul(const Arg& x, const Arg& w, const Arg& offsets);

/// The dims of a dot's operands that are paired, with pairwise equal extents. The result has the batch dims, then a's
/// free dims, then b's free dims.
struct DotDims {
  Shape a_batch, b_batch, a_contract, b_contract;
};
/// The general contraction. Dtypes are promoted; the result has the common dtype or out_dtype (f32 for 16-bit floats).
Tensor dot_general(const Arg& a, const Arg& b, const DotDims& dims, std::optional<DType> out_dtype = {});

extern const OpDef dot_op;  // (a, b) {a_batch, b_batch, a_contract, b_contract, out_dtype?}
// (x[T,K], w[E,K,N], offsets) or (x[T,K], g[T,N], offsets) {mode: rows | contraction}
extern const OpDef grouped_dot_op;
std::span<const OpDef* const> dot_ops();

}  // namespace weft
