// Reductions and running sums. Sums of 16-bit floats accumulate in f32, sums of integers and bool in i64.
#pragma once
#include <span>

#include "framework/dispatch/arg.h"
#include "framework/ir/op_def.h"

namespace weft {

Tensor sum(const Arg& x, const Dims& dims = {}, bool keepdim = false);
Tensor mean(const Arg& x, const Dims& dims = {}, bool keepdim = false);
/// The largest and smallest values; NaN if there is one; ties share the gradient equally.
Tensor amax(const Arg& x, const Dims& dims = {}, bool keepdim = false);
Tensor amin(const Arg& x, const Dims& dims = {}, bool keepdim = false);
Tensor prod(const Arg& x, const Dims& dims = {}, bool keepdim = false);
/// Sum of squared differences from the mean, divided by (count - correction); std is its square root.
/// After `using namespace weft`, write x.std() or weft::std(x): std alone is then also namespace std.
Tensor var(const Arg& x, const Dims& dims = {}, double correction = 1, bool keepdim = false);
Tensor std(const Arg& x, const Dims& dims = {}, double correction = 1, bool keepdim = false);
/// Same as std, under a name that is no namespace.
Tensor std_of(const Arg& x, const Dims& dims = {}, double correction = 1, bool keepdim = false);
/// Logarithm of the sum of e^x, without overflow.
Tensor logsumexp(const Arg& x, const Dims& dims, bool keepdim = false);
/// Index of the largest or smallest value along dim (the first of equal ones), i64; without dim: in the flattened
/// tensor.
Tensor argmax(const Arg& x, int64_t dim, bool keepdim = false);
Tensor argmin(const Arg& x, int64_t dim, bool keepdim = false);
Tensor argmax(const Arg& x);
Tensor argmin(const Arg& x);
/// Running sum along dim; from the end if `reverse`.
Tensor cumsum(const Arg& x, int64_t dim, bool reverse = false);
/// True if any element (all: if every element) is nonzero.
Tensor any(const Arg& x, const Dims& dims = {}, bool keepdim = false);
Tensor all(const Arg& x, const Dims& dims = {}, bool keepdim = false);

extern const OpDef reduce_sum_op;   // {dims, out_dtype?}: ascending dims; the result does not have them
extern const OpDef reduce_max_op;   // {dims}
extern const OpDef reduce_min_op;   // {dims}
extern const OpDef reduce_prod_op;  // {dims}
extern const OpDef argmax_op;       // {dim}
extern const OpDef argmin_op;       // {dim}
extern const OpDef cumsum_op;       // {dim, reverse}
std::span<const OpDef* const> reduce_ops();

}  // namespace weft
