// Elementwise ops: one function and one record per row of ops/kernels/pointwise.inc, and cast.
// Operands broadcast and promote as in PyTorch: numbers and 0-d tensors do not raise a tensor's dtype within its kind.
#pragma once
#include <type_traits>

#include "framework/dispatch/arg.h"
#include "framework/ir/op_def.h"

namespace weft {

#define WEFT_UNARY(name, types, expr, vjp, lo, hi, flops, doc) Tensor name(const Arg& x);
#define WEFT_TEST(name, types, expr, doc) Tensor name(const Arg& x);
#define WEFT_BINARY(name, types, expr, vjp_a, vjp_b, lo, hi, flops, doc) Tensor name(const Arg& a, const Arg& b);
#define WEFT_COMPARE(name, types, expr, doc) Tensor name(const Arg& a, const Arg& b);
#define WEFT_TERNARY(name, types, expr, vjp_a, vjp_b, flops, doc) Tensor name(const Arg& c, const Arg& a, const Arg& b);
#include "ops/kernels/pointwise.inc"

/// x converted to `dtype`: floats to integers by truncation, to bool by != 0; x itself if it already has that dtype.
Tensor cast(const Arg& x, DType dtype);

inline Tensor operator+(const Arg& a, const Arg& b) { return add(a, b); }
inline Tensor operator-(const Arg& a, const Arg& b) { return sub(a, b); }
inline Tensor operator*(const Arg& a, const Arg& b) { return mul(a, b); }
inline Tensor operator/(const Arg& a, const Arg& b) { return div(a, b); }
inline Tensor operator-(const Arg& x) { return neg(x); }
inline Tensor operator<(const Arg& a, const Arg& b) { return lt(a, b); }
inline Tensor operator<=(const Arg& a, const Arg& b) { return le(a, b); }
inline Tensor operator>(const Arg& a, const Arg& b) { return gt(a, b); }
inline Tensor operator>=(const Arg& a, const Arg& b) { return ge(a, b); }
inline Tensor operator==(const Arg& a, const Arg& b) { return eq(a, b); }
inline Tensor operator!=(const Arg& a, const Arg& b) { return ne(a, b); }
inline Tensor operator&(const Arg& a, const Arg& b) { return bit_and(a, b); }
inline Tensor operator|(const Arg& a, const Arg& b) { return bit_or(a, b); }
inline Tensor operator^(const Arg& a, const Arg& b) { return bit_xor(a, b); }
inline Tensor operator!(const Arg& x) { return logical_not(x); }
namespace internal {
/// logical_not with the line of x: an operator of a Tensor itself has no argument for the line of its call.
Tensor logical_not_there(const Tensor& x);
}  // namespace internal
/// The operator for a Tensor itself, whose conversion to bool (an error) would match as well as the conversion to Arg.
template <class T>
requires std::is_same_v<T, Tensor> Tensor operator!(const T& x) { return internal::logical_not_there(x); }

extern const OpDef cast_op;
/// The records of the table's rows, in table order (index = kernels::Pw), and cast.
std::span<const OpDef* const> pointwise_ops();
/// The record with this name, which must exist.
const OpDef& pointwise_op(std::string_view name);

}  // namespace weft
