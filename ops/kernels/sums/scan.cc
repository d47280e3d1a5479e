#include <algorithm>
#include <cstdlib>

#include "framework/base/thread_pool.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/lines.h"
#include "ops/numerics/scan_order.h"

namespace weft::kernels {
namespace {

constexpr int64_t kBlock = 512;
static_assert(kBlock % kScanBlock == 0);

// Scans `cols` neighbouring lines together, step by step.
template <class Acc>
void scan_columns(const StridedView& in, const StridedView& out, const StridedLines& in_lines,
                  const StridedLines& out_lines, int64_t first, int64_t cols, bool reverse) {
  typename ScanCarry<Acc>::type carry[kBlock] = {};
  Acc base[kBlock] = {}, own[kBlock] = {}, row[kBlock];
  const DType type = DTypeOf<Acc>::value;
  const int64_t in_step = in_lines.next_line(), out_step = out_lines.next_line();
  for (int64_t i = 0; i < in_lines.length; ++i) {
    const int64_t at = reverse ? in_lines.length - 1 - i : i;
    cast_copy({in_lines.at(in, first, at), in.dtype, {cols}, {in_step}}, {row, type, {cols}, {1}});
    if (i % kScanBlock == 0)
      for (int64_t c = 0; c < cols; ++c) {
        carry[c] += own[c];
        base[c] = static_cast<Acc>(carry[c]);
        own[c] = 0;
      }
    for (int64_t c = 0; c < cols; ++c) {
      own[c] += row[c];
      row[c] = base[c] + own[c];
    }
    cast_copy({row, type, {cols}, {1}}, {out_lines.at(out, first, at), out.dtype, {cols}, {out_step}});
  }
}

// Scans one line, a block at a time.
template <class Acc>
void scan_line(const StridedView& in, const StridedView& out, const StridedLines& in_lines,
               const StridedLines& out_lines, int64_t line, bool reverse) {
  typename ScanCarry<Acc>::type carry = 0;
  Acc base = 0, own = 0, block[kBlock];
  const DType type = DTypeOf<Acc>::value;
  for (int64_t i = 0; i < in_lines.length; i += kBlock) {
    const int64_t n = std::min(kBlock, in_lines.length - i), at = reverse ? in_lines.length - i - n : i;
    cast_copy({in_lines.at(in, line, at), in.dtype, {n}, {in_lines.stride}}, {block, type, {n}, {1}});
    for (int64_t j = 0; j < n; ++j) {
      if (j % kScanBlock == 0) {
        carry += own;
        base = static_cast<Acc>(carry);
        own = 0;
      }
      Acc& v = block[reverse ? n - 1 - j : j];
      own += v;
      v = base + own;
    }
    cast_copy({block, type, {n}, {1}}, {out_lines.at(out, line, at), out.dtype, {n}, {out_lines.stride}});
  }
}

template <class Acc>
void scan(const StridedView& in, int dim, const StridedView& out, bool reverse) {
  const StridedLines a(in, dim), b(out, dim);
  if (a.length == 0) return;
  // Groups neighbouring lines if they are closer in memory than the elements of one line.
  const int64_t group =
      a.neighbours() > 1 && std::abs(a.next_line()) < std::abs(a.stride) ? std::min(a.neighbours(), kBlock) : 1;
  const int64_t per_row = (a.neighbours() + group - 1) / group, groups = a.count / a.neighbours() * per_row;
  const int64_t grain = std::max<int64_t>(1, (1 << 14) / (a.length * group));
  parallel_chunks(groups, grain, [&](int64_t begin, int64_t end) {
    for (int64_t g = begin; g < end; ++g) {
      const int64_t first = g / per_row * a.neighbours() + g % per_row * group;
      const int64_t cols = std::min(group, a.neighbours() - g % per_row * group);
      if (group > 1) {
        scan_columns<Acc>(in, out, a, b, first, cols, reverse);
      } else {
        scan_line<Acc>(in, out, a, b, first, reverse);
      }
    }
  });
}

}  // namespace

void cumsum(const StridedView& in, int dim, const StridedView& out, bool reverse) {
  WEFT_CHECK(in.shape == out.shape && dim >= 0 && dim < in.shape.size(), "cumsum: got shapes ", in.shape, " and ",
             out.shape, " and dim ", dim);
  if (out.numel() == 0) return;
  if (in.dtype == kFloat64) return scan<double>(in, dim, out, reverse);
  if (is_floating(in.dtype)) return scan<float>(in, dim, out, reverse);
  scan<int64_t>(in, dim, out, reverse);
}

}  // namespace weft::kernels
