#include "ops/composite/search.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "framework/base/called.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"
#include "ops/core/reductions/reduce.h"

namespace weft {

using namespace internal;

namespace {

// Whether an element is to the left of a value's place.
Tensor before(const Tensor& element, const Tensor& value, bool right) {
  if (!right) return (element < value) | (isnan(value) & !isnan(element));
  return (element <= value) | isnan(value);
}

// For each value, the number of elements of its row that are before it. The bits of the number are found from the
// highest one down, in log2(n) look-ups.
Tensor places(const Tensor& sorted, const Tensor& values, bool right) {
  const int64_t n = sorted.size(-1);
  const bool rows = sorted.dim() > 1;
  const TensorOptions index{.dtype = kInt64, .device = sorted.device()};
  Tensor count = zeros(values.shape(), index);
  for (auto step = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(n))); step > 0; step /= 2) {
    const Tensor next = count + step, at = minimum(next, n) - 1;
    const Tensor element =
        rows ? gather(sorted, -1, at) : reshape(index_select(sorted, 0, flatten(at)), values.shape());
    count = where((next <= n) & before(element, values, right), next, count);
  }
  return count;
}

Tensor search(const Tensor& sorted, const Tensor& values, const SearchOptions& options, const char* op) {
  Shape rows = sorted.shape(), to = values.shape();
  if (!rows.empty()) rows.pop_back();
  if (!to.empty()) to.pop_back();
  WEFT_CHECK(sorted.dim() == 1 || (sorted.dim() > 1 && sorted.dim() == values.dim() && rows == to), op,
             ": sorted numbers ", sorted.type(), " and values ", values.type(),
             "; need one dim, or equal dims before the last");
  return cast(places(sorted.detach(), values.detach(), options.right), options.out_int32 ? kInt32 : kInt64);
}

// The operand, or a number as a 0-d tensor that compares with `like`.
Tensor value_of(const Arg& value, const Tensor& like, const char* op) {
  if (value.is_tensor()) return tensor_of(value, op);
  const DType dtype = is_floating(like.dtype()) ? like.dtype() : value.kind() == Arg::kFloat ? kFloat64 : kInt64;
  return full({}, value, {.dtype = dtype, .device = like.device()});
}

// The runs of equal neighbours along dim 0: which run each slice belongs to, and the first slice of each run.
struct Runs {
  Tensor of, first;
};
Runs runs_of(const Tensor& x) {
  const int64_t n = x.size(0);
  Tensor changes = slice(x, 0, 1, n) != slice(x, 0, 0, std::max<int64_t>(n - 1, 0));
  if (x.dim() > 1) changes = any(changes, 1);
  const Tensor starts = cat({ones({std::min<int64_t>(n, 1)}, {.dtype = kBool, .device = x.device()}), changes});
  return {cumsum(cast(starts, kInt64), 0) - 1, flatten(nonzero(starts))};
}

// The lexicographic order of the rows of x [n, m], which has values.
template <class T>
Tensor row_order(const Tensor& x) {
  const auto n = static_cast<size_t>(x.size(0)), m = static_cast<size_t>(x.size(1));
  const std::vector<T> v = x.to_vector<T>();
  std::vector<int64_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    const T *p = v.data() + static_cast<size_t>(a) * m, *q = v.data() + static_cast<size_t>(b) * m;
    return std::lexicographical_compare(p, p + m, q, q + m, [](T s, T t) { return s < t || (t != t && s == s); });
  });
  return positions_of(order, x.device());
}

Unique unique_slices(const Arg& arg, int64_t dim, bool sorted, const char* op) {
  const Called name(op);
  const FirstOperand x(arg, op);
  const int d = normalize_dim(dim, x.dim(), op);
  require_values(x, op, "the slices as they are");
  Tensor front = movedim(x, d, 0);
  const int64_t n = front.size(0);
  Tensor rows = reshape(front, {n, n > 0 ? front.numel() / n : 1}), order;
  if (sorted) {
    order = is_floating(x.dtype()) ? row_order<double>(rows) : row_order<int64_t>(rows);
    front = index_select(front, 0, order);
    rows = index_select(rows, 0, order);
  }
  const Runs runs = runs_of(rows);
  return {movedim(index_select(front, 0, runs.first), 0, d),
          sorted ? index_copy(zeros_like(runs.of), 0, order, runs.of) : runs.of,
          histogram(runs.of, runs.first.numel())};
}

}  // namespace

Tensor searchsorted(const Arg& sorted, const Arg& values, const SearchOptions& options) {
  const Called name("searchsorted");
  const FirstOperand s(sorted, "searchsorted");
  return search(s, value_of(values, s, "searchsorted"), options, "searchsorted");
}

Tensor bucketize(const Arg& x, const Arg& boundaries, const SearchOptions& options) {
  const Called name("bucketize");
  const FirstOperand s(boundaries, "bucketize");
  WEFT_CHECK(s.dim() == 1, "bucketize: boundaries are ", s.type(), "; need one dim");
  return search(s, value_of(x, s, "bucketize"), options, "bucketize");
}

Tensor isin(const Arg& x, const Arg& test, bool invert) {
  const Called name("isin");
  LineScope here(x.line());
  WEFT_CHECK(x.is_tensor() || test.is_tensor(), "isin: both operands are numbers; need a tensor");
  const Tensor elements = value_of(x, x.is_tensor() ? x.tensor() : test.tensor(), "isin").detach();
  const Tensor t = flatten(value_of(test, elements, "isin")).detach();
  if (t.numel() == 0) return full(elements.shape(), invert, {.dtype = kBool, .device = elements.device()});
  const Tensor s = sort(t).values;
  const Tensor at = minimum(places(s, elements, false), t.numel() - 1);
  const Tensor nearest = reshape(index_select(s, 0, flatten(at)), elements.shape());
  return invert ? nearest != elements : nearest == elements;
}

Unique unique(const Arg& arg) {
  const Called name("unique");
  const FirstOperand x(arg, "unique");
  require_values(x, "unique", "sort(x), which keeps the number of elements");
  const Sorted s = sort(flatten(x));
  const Runs runs = runs_of(s.values);
  const Tensor inverse = index_copy(zeros_like(runs.of), 0, s.indices, runs.of);
  return {index_select(s.values, 0, runs.first), reshape(inverse, x.shape()), histogram(runs.of, runs.first.numel())};
}

Unique unique_consecutive(const Arg& arg) {
  const Called name("unique_consecutive");
  const FirstOperand x(arg, "unique_consecutive");
  require_values(x, "unique_consecutive", "a mask of the elements that differ from their neighbours");
  const Tensor flat = flatten(x);
  const Runs runs = runs_of(flat);
  return {index_select(flat, 0, runs.first), reshape(runs.of, x.shape()), histogram(runs.of, runs.first.numel())};
}

Unique unique(const Arg& x, int64_t dim) { return unique_slices(x, dim, true, "unique"); }
Unique unique_consecutive(const Arg& x, int64_t dim) { return unique_slices(x, dim, false, "unique_consecutive"); }

Tensor one_hot(const Arg& arg) {
  const FirstOperand x(arg, "one_hot");
  WEFT_CHECK(is_integral(x.dtype()), "one_hot: x is ", x.type(), "; need integers");
  require_values(x, "one_hot", "the number of classes: one_hot(x, classes)");
  WEFT_CHECK(x.numel() > 0, "one_hot: x ", x.type(), " is empty; need the number of classes: one_hot(x, classes)");
  int64_t most = 0;
  for (int64_t v : x.to_vector<int64_t>()) {
    WEFT_CHECK(v >= 0, "one_hot: x has ", v, "; need 0 or more");
    most = std::max(most, v);
  }
  return one_hot(x, saturating_add(most, 1));
}

Tensor bincount(const Arg& arg, const Tensor& weights, int64_t minlength) {
  const FirstOperand x(arg, "bincount");
  WEFT_CHECK(x.dim() == 1 && is_integral(x.dtype()), "bincount: got ", x.type(), "; need integers in one dim");
  WEFT_CHECK(minlength >= 0, "bincount: minlength is ", minlength, "; need 0 or more");
  require_values(x, "bincount", "histogram(x, bins)");
  int64_t bins = minlength;
  for (int64_t v : x.to_vector<int64_t>()) {
    WEFT_CHECK(v >= 0, "bincount: x has ", v, "; need 0 or more");
    bins = std::max(bins, saturating_add(v, 1));
  }
  if (!weights.defined()) return histogram(x, bins);
  WEFT_CHECK(weights.shape() == x.shape(), "bincount: weights are ", weights.type(), " for x ", x.shape(),
             "; need x's shape");
  const Tensor w = cast(weights, weights.dtype() == kFloat32 ? kFloat32 : kFloat64);
  return scatter_add(zeros({bins}, {.dtype = w.dtype(), .device = x.device()}), 0, x, w);
}

}  // namespace weft
