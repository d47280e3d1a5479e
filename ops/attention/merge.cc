#include "ops/attention/merge.h"

#include <limits>

#include "ops/core/core.h"

namespace weft {

PartialAttention merge_attention(const PartialAttention& a, const PartialAttention& b) {
  WEFT_CHECK(a.out.type() == b.out.type() && a.lse.type() == b.lse.type() && itemsize(a.out.dtype()) >= 4,
             "merge_attention: out is ", a.out.type(), " and ", b.out.type(), ", lse ", a.lse.type(), " and ",
             b.lse.type(), "; need one type each, out f32 or f64 (ShardOptions::wide)");
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const Tensor top = maximum(a.lse, b.lse), shift = where(eq(top, -kInf), 0.0, top);
  const Tensor of_a = exp(a.lse - shift), of_b = exp(b.lse - shift), total = of_a + of_b;
  const Tensor none = eq(total, 0.0), divisor = where(none, 1.0, total);
  const Tensor out = a.out * unsqueeze(of_a / divisor, -1) + b.out * unsqueeze(of_b / divisor, -1);
  return {out, where(none, -kInf, log(divisor) + shift), maximum(a.max, b.max)};
}

}  // namespace weft
