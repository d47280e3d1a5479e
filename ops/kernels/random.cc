#include <algorithm>

#include "framework/base/thread_pool.h"
#include "ops/kernels/kernels.h"
#include "ops/numerics/philox.h"

namespace weft::kernels {

void random_bits(uint64_t seed, uint64_t step, uint32_t op_id, int64_t first_index, const StridedView& out) {
  WEFT_CHECK(out.dtype == kInt32, "random_bits: output has dtype ", out.dtype, "; need i32");
  WEFT_CHECK_AS(kOutOfRange, first_index >= 0, "random_bits: first index is ", first_index, "; need at least 0");
  const int64_t n = out.numel();
  const bool direct = out.contiguous();
  parallel_chunks(n, 1 << 14, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end;) {
      const uint64_t at = static_cast<uint64_t>(first_index + i);
      uint32_t words[4];
      philox4x32(seed, at / 4, op_id, static_cast<uint32_t>(step), words);
      for (uint64_t w = at % 4; w < 4 && i < end; ++w, ++i) {
        int64_t offset = i;
        if (!direct) {
          offset = 0;
          for (int64_t d = out.shape.size() - 1, rest = i; d >= 0; --d) {
            offset += rest % out.shape[d] * out.strides[d];
            rest /= out.shape[d];
          }
        }
        out.as<uint32_t>()[offset] = words[w];
      }
    }
  });
}

void random_bits_at(uint64_t seed, uint64_t step, uint32_t op_id, const StridedView& base, const Shape& shape,
                    const Shape& strides, const StridedView& out) {
  WEFT_CHECK(out.dtype == kInt32, "random_bits_at: output has dtype ", out.dtype, "; need i32");
  const int rank = shape.size();
  parallel_chunks(shape.numel(), 1 << 14, [&](int64_t begin, int64_t end) {
    uint64_t block = ~uint64_t{0};
    uint32_t words[4];
    for (int64_t i = begin; i < end; ++i) {
      uint64_t at = 0;  // positions wrap
      int64_t offset = 0, from = 0;
      for (int64_t d = rank - 1, rest = i; d >= 0; --d) {
        const int64_t k = rest % shape[d];
        at += static_cast<uint64_t>(k) * static_cast<uint64_t>(strides[d]);
        offset += k * out.strides[d];
        if (!base.shape.empty() && base.shape[d] > 1) from += k * base.strides[d];
        rest /= shape[d];
      }
      at += static_cast<uint64_t>(base.as<int64_t>()[from]);
      if (const uint64_t b = at / 4; b != block) {
        philox4x32(seed, b, op_id, static_cast<uint32_t>(step), words);
        block = b;
      }
      out.as<uint32_t>()[offset] = words[at % 4];
    }
  });
}

}  // namespace weft::kernels
