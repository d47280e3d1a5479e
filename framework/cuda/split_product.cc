#include "framework/cuda/split_product.h"

#include <algorithm>

namespace weft::cuda {
namespace {

// Smaller products gain less than the second launch takes. So many terms are also why the rounding of the sum of 7 of
// them is within the error of the whole sum in f32: k 2^-24 of the sum of all magnitudes.
constexpr int64_t kLeastExtent = 2048;
constexpr double kLeastFlops = 1e9;

}  // namespace

std::optional<SplitProduct> split_product(const MatmulShape& s) {
  if (!is_16bit(s.in) && !s.tf32) return {};
  if (s.epilogue != MatmulEpilogue::none || s.beta != 0) return {};
  if (2.0 * static_cast<double>(s.batch) * static_cast<double>(s.m * s.n) * static_cast<double>(s.k) < kLeastFlops)
    return {};
  const int64_t unit = 16 / itemsize(s.in);
  SplitProduct p{s, s};
  MatmulShape smaller = s;  // it begins at a multiple of 16 bytes
  for (int* align : {&smaller.align_a, &smaller.align_b, &smaller.align_out}) *align = std::min(*align, 16);
  if (const int64_t rest = s.n % unit; rest != 0 && s.n >= kLeastExtent && s.m > 1 && s.out_row % unit == 0) {
    p.second = smaller;
    p.first.n = s.n - rest;
    p.second.n = rest;
    p.b = p.first.n * s.b.col;
    p.out = p.first.n;
    return p;
  }
  // The terms of an operand are neighbours in memory, and its lines are aligned.
  const bool lines = (s.a.col == 1 && s.a.row % unit == 0) || (s.b.row == 1 && s.b.col % unit == 0);
  if (const int64_t rest = s.k % unit; rest != 0 && s.k >= kLeastExtent && lines) {
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
