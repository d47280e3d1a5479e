#include "ops/composite/images/grid.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "framework/base/saturate.h"
#include "ops/composite/host_list.h"
#include "ops/core/fits.h"
#include "ops/core/indexing/index.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"

namespace weft {

using namespace internal;

namespace {

Tensor finished(const Tensor& x, const TensorOptions& options) {
  const Tensor y = cast(x, options.dtype);
  return options.requires_grad ? y.requires_grad() : y;
}

// The numbers in f64. The second half is counted from the end, so that the last number is `end`.
Tensor spaced(double start, double end, int64_t steps, Device device, const char* op) {
  WEFT_CHECK(steps >= 0, op, ": ", steps, " steps; need 0 or more");
  WEFT_CHECK(std::isfinite(start) && std::isfinite(end), op, ": from ", start, " to ", end, "; need finite numbers");
  const auto gaps = static_cast<double>(std::max<int64_t>(steps - 1, 1));
  const double span = end - start, step = std::isfinite(span) ? span / gaps : end / gaps - start / gaps;
  const Tensor i = arange(steps, {.dtype = kFloat64, .device = device});
  if (steps < 2) return i + start;
  return where(i < static_cast<double>(steps / 2), i * step + start, end - (gaps - i) * step);
}

Tensor triangle_indices(int64_t rows, int64_t columns, int64_t diagonal, bool lower, const TensorOptions& options,
                        const char* op) {
  WEFT_CHECK(rows >= 0 && columns >= 0, op, ": ", rows, " rows and ", columns, " columns; need 0 or more");
  checked_numel({2, rows, columns}, op);
  check_fits(op, std::max<int64_t>({rows - 1, columns - 1, 0}), options.dtype);
  constexpr int64_t kMostRows = int64_t{1} << 31;  // each is visited
  WEFT_CHECK_AS(kResourceExhausted, rows <= kMostRows, op, ": ", rows, " rows; need at most ", kMostRows);
  const int64_t shift = std::clamp(diagonal, -rows, columns);  // beyond these all or nothing is kept
  const auto columns_of = [&](int64_t i) {                     // begin and end
    const int64_t edge = std::clamp<int64_t>(i + shift + (lower ? 1 : 0), 0, columns);
    return lower ? std::pair<int64_t, int64_t>(0, edge) : std::pair(edge, columns);
  };
  int64_t n = 0;
  for (int64_t i = 0; columns > 0 && i < rows; ++i) n += columns_of(i).second - columns_of(i).first;
  const Tensor at = host_list<int64_t>(2 * n, options.device, [&](std::span<int64_t> out) {
    for (int64_t i = 0, k = 0; k < n; ++i)
      for (auto [j, end] = columns_of(i); j < end; ++j, ++k) {
        out[static_cast<size_t>(k)] = i;
        out[static_cast<size_t>(n + k)] = j;
      }
  });
  return finished(reshape(at, {2, n}), options);
}

// The number of ways to choose r of n, or the largest int64.
int64_t choices(int64_t n, int64_t r) {
  if (r > n) return 0;
  int64_t count = 1;
  for (int64_t i = 1; i <= std::min(r, n - r); ++i) {
    // count * (n - i + 1) / i, which is whole, without an intermediate product that is larger than it.
    const int64_t common = std::gcd(count, i);
    count = saturating_mul(count / common, (n - i + 1) / (i / common));
    if (count == std::numeric_limits<int64_t>::max()) break;
  }
  return count;
}

std::vector<Tensor> grid(const std::vector<Tensor>& xs, const char* op) {
  WEFT_CHECK(!xs.empty(), op, ": no tensors; need one or more");
  Shape shape;
  for (const Tensor& x : xs) {
    WEFT_CHECK(x.dim() <= 1, op, ": got ", x.type(), "; need tensors of one dim");
    shape.push_back(x.numel());
  }
  std::vector<Tensor> r;
  for (size_t k = 0; k < xs.size(); ++k) {
    Shape along = Shape::filled(shape.size(), 1);
    along[static_cast<int>(k)] = shape[static_cast<int>(k)];
    r.push_back(broadcast_to(reshape(xs[k], along), shape));
  }
  return r;
}

}  // namespace

Tensor linspace(double start, double end, int64_t steps, const TensorOptions& options, std::source_location loc) {
  LineScope here(loc);
  if (std::isfinite(start) && std::isfinite(end))
    for (double v : {start, end}) check_fits("linspace", v, options.dtype);
  return finished(spaced(start, end, steps, options.device, "linspace"), options);
}

Tensor logspace(double start, double end, int64_t steps, double base, const TensorOptions& options,
                std::source_location loc) {
  LineScope here(loc);
  if (std::isfinite(start) && std::isfinite(end))
    for (double v : {start, end}) check_fits("logspace", std::pow(base, v), options.dtype);
  return finished(pow(base, spaced(start, end, steps, options.device, "logspace")), options);
}

Tensor tril_indices(int64_t rows, int64_t columns, int64_t diagonal, const TensorOptions& options,
                    std::source_location loc) {
  LineScope here(loc);
  return triangle_indices(rows, columns, diagonal, true, options, "tril_indices");
}

Tensor triu_indices(int64_t rows, int64_t columns, int64_t diagonal, const TensorOptions& options,
                    std::source_location loc) {
  LineScope here(loc);
  return triangle_indices(rows, columns, diagonal, false, options, "triu_indices");
}

std::vector<Tensor> meshgrid(const std::vector<Tensor>& xs, std::string_view indexing, std::source_location loc) {
  LineScope here(loc);
  WEFT_CHECK(indexing == "ij" || indexing == "xy", "meshgrid: indexing is '", indexing, "'; need \"ij\" or \"xy\"");
  std::vector<Tensor> r = grid(xs, "meshgrid");
  if (indexing == "xy" && xs.size() > 1)
    for (Tensor& x : r) x = transpose(x, 0, 1);
  return r;
}

Tensor cartesian_prod(const std::vector<Tensor>& xs, std::source_location loc) {
  LineScope here(loc);
  std::vector<Tensor> columns = grid(xs, "cartesian_prod");
  if (columns.size() == 1) return columns[0];
  for (Tensor& x : columns) x = flatten(x);
  return stack(columns, 1);
}

Tensor combinations(const Arg& arg, int64_t r, bool with_replacement) {
  const FirstOperand x(arg, "combinations");
  WEFT_CHECK(x.dim() == 1, "combinations: got ", x.type(), "; need one dim");
  WEFT_CHECK(r >= 0, "combinations: r is ", r, "; need 0 or more");
  const int64_t n = x.size(0);
  if (r == 0) return empty({0}, {.dtype = x.dtype(), .device = x.device()});
  const int64_t count = n == 0 ? 0 : choices(with_replacement ? saturating_add(n, r - 1) : n, r);
  checked_numel({count, r}, "combinations");
  const Tensor all = host_list<int64_t>(count * r, x.device(), [&](std::span<int64_t> out) {
    if (count == 0) return;
    std::vector<int64_t> at(static_cast<size_t>(r));
    for (size_t k = 0; k < at.size(); ++k) at[k] = with_replacement ? 0 : static_cast<int64_t>(k);
    for (auto to = out.begin(); to != out.end();) {
      to = std::copy(at.begin(), at.end(), to);
      // The next choice: the last position that can move up does, and the positions after it follow.
      int64_t k = r - 1;
      while (k > 0 && at[static_cast<size_t>(k)] == n - 1 - (with_replacement ? 0 : r - 1 - k)) --k;
      int64_t next = at[static_cast<size_t>(k)] + 1;
      for (int64_t j = k; j < r; ++j) at[static_cast<size_t>(j)] = with_replacement ? next : next++;
    }
  });
  return reshape(index_select(x, 0, all), {count, r});
}

}  // namespace weft
