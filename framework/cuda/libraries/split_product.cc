#include "framework/cuda/libraries/split_product.h"

#include <algorithm>

namespace weft::cuda {
namespace {

// The second launch takes longer than smaller products gain.
constexpr int64_t kLeastExtent = 2048;
constexpr double kLeastFlops = 1e9;

// Whether the first terms may be rounded to the result's type before the others are added. In bf16 that is 2^-9 of
// their magnitudes, within the error k 2^-24 of the whole sum in f32. In f16 a part may overflow where the sum does
// not.
bool may_round_part(const MatmulShape& s) {
  return s.out == kFloat32 || (s.out == kBFloat16 && s.k >= int64_t{1} << 15);
}

}  // namespace

std::optional<SplitProduct> split_product(const MatmulShape& s) {
  if (!is_16bit(s.in) && !s.tf32) return {};
  if (s.epilogue != MatmulEpilogue::none || s.beta != 0) return {};
  if (2.0 * static_cast<double>(s.batch) * static_cast<double>(s.m * s.n) * static_cast<double>(s.k) < kLeastFlops)
    return {};
  const int64_t unit = kTensorCoreAlignment / itemsize(s.in);
  const auto lines = [&](const MatrixStrides& x) {
    return (x.col == 1 ? x.row : x.col) % unit == 0 && (s.batch == 1 || x.batch % unit == 0);
  };
  if (std::min({s.align_a, s.align_b, s.align_out}) < kTensorCoreAlignment || !lines(s.a) || !lines(s.b) ||
      s.out_row % unit != 0 || (s.batch > 1 && s.out_batch % unit != 0))
    return {};
  SplitProduct p{s, s};
  MatmulShape smaller = s;  // its addresses are multiples of 16 bytes only
  for (int* align : {&smaller.align_a, &smaller.align_b, &smaller.align_out}) *align = kTensorCoreAlignment;
  if (const int64_t rest = s.n % unit; rest != 0 && s.n >= kLeastExtent && s.m > 1) {
    p.second = smaller;
    p.first.n = s.n - rest;
    p.second.n = rest;
    p.b = p.first.n * s.b.col;
    p.out = p.first.n;
    return p;
  }
  const bool along_lines = s.a.col == 1 || s.b.row == 1;  // the terms of an operand are neighbours in memory
  if (const int64_t rest = s.k % unit;
      rest != 0 && s.k >= kLeastExtent && along_lines && may_round_part(s) && std::min(s.m, s.n) >= unit) {
    p.first_is_smaller = true;
    p.first = smaller;
    p.first.k = rest;
    p.second.k = s.k - rest;
    p.second.beta = 1;
    p.a = p.second.k * s.a.col;
    p.b = p.second.k * s.b.row;
    return p;
  }
  return {};
}

}  // namespace weft::cuda
