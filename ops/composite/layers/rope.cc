#include "ops/composite/layers/rope.h"

#include "ops/composite/precision.h"
#include "ops/core/indexing/view.h"

namespace weft {

using namespace internal;

RopeTables rope_tables(const Arg& positions, int64_t dim, double theta) {
  const FirstOperand p(positions, "rope_tables");
  WEFT_CHECK(dim > 0 && dim % 2 == 0, "rope_tables: dim is ", dim, "; need a positive even number");
  WEFT_CHECK(theta > 0, "rope_tables: theta is ", theta, "; need a positive number");
  const Tensor pair = arange(dim / 2, TensorOptions{.dtype = kFloat32, .device = p.device()});
  const Tensor frequency = pow(theta, pair * (-2.0 / static_cast<double>(dim)));
  const Tensor angle = unsqueeze(p.to(kFloat32), -1) * frequency;
  return {cos(angle), sin(angle)};
}

Tensor apply_rope(const Arg& x, const RopeTables& tables, bool interleaved) {
  const FloatingOperand t(x, "apply_rope");
  WEFT_CHECK(t.dim() >= 2 && t.size(-1) == 2 * tables.cos.size(-1), "apply_rope: x has shape ", t.shape(),
             " and tables ", tables.cos.shape(), "; need [..., S, D] and [..., S, D/2]");
  const Tensor v = widened(t);
  const Tensor c = tables.cos.to(v.dtype()), s = tables.sin.to(v.dtype());
  const int64_t half = t.size(-1) / 2;
  Tensor y;
  if (interleaved) {
    Shape pairs = t.shape();
    pairs.back() = half;
    pairs.push_back(2);
    const Tensor p = reshape(v, pairs);
    const Tensor a = select(p, -1, 0), b = select(p, -1, 1);
    y = reshape(stack({a * c - b * s, b * c + a * s}, -1), t.shape());
  } else {
    const Tensor a = slice(v, -1, 0, half), b = slice(v, -1, half, 2 * half);
    y = cat({a * c - b * s, b * c + a * s}, -1);
  }
  return y.to(t.dtype());
}

Tensor rope(const Arg& x, const RopeOptions& options) {
  const FloatingOperand t(x, "rope");
  WEFT_CHECK(t.dim() >= 2, "rope: x has shape ", t.shape(), "; need [..., S, D]");
  const int64_t dim = t.size(-1), rotated = options.rotary_dim ? options.rotary_dim : dim;
  WEFT_CHECK(rotated > 0 && rotated <= dim && rotated % 2 == 0, "rope: ", rotated, " of ", dim,
             " features are rotated; need a positive even number of them");
  Tensor positions = arange(t.size(-2), TensorOptions{.dtype = kInt64, .device = t.device()});
  if (options.offset.defined()) {
    WEFT_CHECK(options.offset.dim() == 0 && is_integral(options.offset.dtype()), "rope: offset is ",
               options.offset.type(), "; need a 0-d integer");
    positions = positions + options.offset;
  }
  const RopeTables tables = rope_tables(positions, rotated, options.theta);
  if (rotated == dim) return apply_rope(t, tables, options.interleaved);
  return cat({apply_rope(slice(t, -1, 0, rotated), tables, options.interleaved), slice(t, -1, rotated, dim)}, -1);
}

}  // namespace weft
