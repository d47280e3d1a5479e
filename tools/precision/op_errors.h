// The errors of ops in a number format.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace weft::precision {

/// Statistics of relative errors.
struct ErrorRange {
  double median = 0, p99 = 0, max = 0;
};

/// Relative errors of the results of one op in one format, against f64 results of the same operands before rounding.
/// Results that are 0 in f64 are left out.
struct OpError {
  std::string op, format;
  /// Operands and results are rounded, and the op computes in f64, like Weft's kernels, which compute 16-bit floats in
  /// f32.
  ErrorRange wide;
  /// The result of each scalar operation is rounded; none in a format with blocks.
  std::optional<ErrorRange> narrow;
  double overflowed = 0;  // share of infinite or NaN results, with each operation rounded; excluded from the errors
};

/// Products, sums, sums of squares, dot products, softmax, RMS norm, layer norm, exp and GELU of 256 standard normal
/// values, `repeats` times, in each format without blocks or integers; block formats round operands and results only.
std::vector<OpError> op_errors(int64_t repeats, uint64_t seed);

}  // namespace weft::precision
