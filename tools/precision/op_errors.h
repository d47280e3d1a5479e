// What ops lose in a number format.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace weft::precision {

/// Relative errors of the results of one op in one format, against f64 of the same operands before rounding. Results
/// that f64 gives as 0 are left out.
struct OpError {
  std::string op, format;
  /// Operands and results are rounded, and between them the op computes in f64: as Weft's kernels, which compute 16-bit
  /// floats in f32.
  double wide_median = 0, wide_p99 = 0, wide_max = 0;
  /// The result of each scalar operation is rounded.
  double narrow_median = 0, narrow_p99 = 0, narrow_max = 0;
  double overflowed = 0;  // share of results that are infinite or NaN, with each operation rounded; not in the errors
};

/// Products, sums, sums of squares, dot products, softmax, RMS norm, layer norm, exp and GELU of 256 standard normal
/// values, `repeats` times, in each format without blocks or integers; block formats round operands and results only.
std::vector<OpError> op_errors(int64_t repeats, uint64_t seed);

}  // namespace weft::precision
