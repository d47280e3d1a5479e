#include "ops/attention/merge.h"

#include <limits>

#include "ops/core/core.h"

namespace weft {

PartialAttention merge_attention(const PartialAttention& a, const PartialAttention& b, double scale) {
  WEFT_CHECK(a.out.type() == b.out.type() && a.log_sum.type() == b.log_sum.type() && itemsize(a.out.dtype()) >= 4,
             "merge_attention: out is ", a.out.type(), " and ", b.out.type(), ", log_sum ", a.log_sum.type(), " and ",
             b.log_sum.type(), "; need one type each, out f32 or f64 (ShardOptions::wide)");
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const Tensor top = maximum(a.max, b.max), shift = where(eq(top, -kInf), 0.0, top);
  const Tensor of_a = exp((a.max - shift) * scale + a.log_sum), of_b = exp((b.max - shift) * scale + b.log_sum);
  const Tensor total = of_a + of_b;
  const Tensor none = eq(total, 0.0), divisor = where(none, 1.0, total);
  const Tensor out = a.out * unsqueeze(of_a / divisor, -1) + b.out * unsqueeze(of_b / divisor, -1);
  return {out, where(none, -kInf, log(divisor)), top};
}

}  // namespace weft
