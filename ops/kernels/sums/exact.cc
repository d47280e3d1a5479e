#include "ops/kernels/sums/exact.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "framework/base/cpu.h"
#include "framework/base/thread_pool.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/lines.h"
#include "ops/kernels/sums/exact_isa.h"
#include "ops/kernels/tables.h"

namespace weft::kernels {
namespace {

constexpr int64_t kGrain = 1 << 13;
constexpr int kTop = kExactDigits - 1, kCounts = kExactDigits;
constexpr int64_t kHalf = int64_t{1} << (kExactBits - 1), kMask = (int64_t{1} << kExactBits) - 1;
constexpr int kCountBits = 21;
constexpr int64_t kCountMask = (int64_t{1} << kCountBits) - 1;
constexpr int64_t kInfiniteTop = int64_t{1} << 47;  // top digit of a carried sum: 2^138
static_assert(kExactWidth == kExactDigits + 1);

int exponent(int digit) { return kExactLeast + kExactBits * digit; }

// ---- the digits that a set of numbers can use ----

// All |x| < 2^top, and x is a multiple of 2^low.
struct ExactRange {
  int top = -10000, low = 10000;
  bool finite = true;
  void add(const ExactRange& o) {
    top = std::max(top, o.top);
    low = std::min(low, o.low);
    finite = finite && o.finite;
  }
  friend ExactRange operator*(const ExactRange& a, const ExactRange& b) {
    return {std::max(-20000, a.top + b.top), a.low + b.low, a.finite && b.finite};
  }
};

ExactRange range_of(const double* x, int64_t n) {
  ExactRange r;
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t bits = std::bit_cast<uint64_t>(x[i]), mantissa = bits & ((uint64_t{1} << 52) - 1);
    const int e = static_cast<int>(bits >> 52 & 0x7ff);
    if (e == 0x7ff) r.finite = false;
    if (bits << 1 == 0) continue;
    r.top = std::max(r.top, e - 1022);
    r.low = std::min(r.low, std::max(e, 1) - 1075 +
                                (e ? std::countr_zero(mantissa | uint64_t{1} << 52) : std::countr_zero(mantissa)));
  }
  return r;
}

ExactRange range_of_all(const double* x, int64_t n) {
  const int64_t chunks = (n + kGrain - 1) / kGrain;
  std::vector<ExactRange> parts(static_cast<size_t>(chunks));
  parallel_for(chunks, [&](int64_t c) {
    parts[static_cast<size_t>(c)] = range_of(x + c * kGrain, std::min(kGrain, n - c * kGrain));
  });
  ExactRange r;
  for (const ExactRange& p : parts) r.add(p);
  return r;
}

// The digits that are not zero for every term: skipping the others changes nothing.
struct TermDigits {
  int first = 0, count = 0;  // none: all terms are zero
  bool plain = true;         // false: some terms may not be digits, so each is checked
  explicit TermDigits(const ExactRange& r) {
    if (!r.finite || r.top > 127) {
      plain = false;
      count = kExactDigits;
      return;
    }
    if (r.top < -5000 || r.low > 5000) return;
    int last = 0;
    while (last < kTop && r.top > exponent(last + 1) - 1) ++last;
    while (first < last && exponent(first + 1) <= r.low) ++first;
    count = last - first + 1;
  }
};

// ---- terms ----

void add_digits(double x, int first, int count, int64_t* limbs) {
  for (int j = first + count - 1; j >= first; --j) {
    const double shift = std::bit_cast<double>(uint64_t(1023 + 52 + exponent(j)) << 52 | uint64_t{1} << 51);
    const double t = x + shift;
    limbs[j] += std::bit_cast<int64_t>(t) - std::bit_cast<int64_t>(shift);
    x -= t - shift;
  }
}

void add_any(double x, int64_t* limbs) {
  if (std::fabs(x) < 0x1p128) return add_digits(x, 0, kExactDigits, limbs);
  limbs[kCounts] += int64_t{1} << (std::isnan(x) ? 2 * kCountBits : x > 0 ? kCountBits : 0);
}

// Adds the terms a[i] b[i], or b[i] if a is null, to limbs. limbs must have at most kExactPlain terms, or be carried.
class RowSum {
 public:
  RowSum(const TermDigits& digits, bool product) : d_(digits) {
    if (d_.plain && d_.count) fn_ = WEFT_SELECT(exact_row)(product, d_.count);
  }
  void operator()(const double* a, const double* b, int64_t n, int64_t* limbs) const {
    if (d_.count == 0) return;
    for (int64_t i = 0; i < n; i += kExactPlain) {
      const int64_t part = std::min(kExactPlain, n - i);
      if (fn_) {
        fn_(a ? a + i : nullptr, b + i, part, d_.first, limbs);
      } else {
        for (int64_t k = i; k < i + part; ++k) add_any(a ? a[k] * b[k] : b[k], limbs);
      }
      if (n > kExactPlain) exact_carry(limbs);
    }
  }

 private:
  TermDigits d_;
  ExactRowFn fn_ = nullptr;
};

// ---- copies as f64 ----

double* copied(const StridedView& v, void* scratch) {
  cast_copy(v, {scratch, kFloat64, v.shape, contiguous_strides(v.shape)});
  return static_cast<double*>(scratch);
}

StridedView permuted(StridedView v, std::initializer_list<int> order) {
  StridedView r{v.data, v.dtype, {}, {}};
  for (int d : order) {
    r.shape.push_back(v.shape[d]);
    r.strides.push_back(v.strides[d]);
  }
  return r;
}

int64_t* limbs_of(const char* name, const StridedView& out) {
  WEFT_BUG_IF(!out.contiguous() || out.dtype != kInt64 || out.shape.empty() || out.shape.back() != kExactWidth, name,
              ": result is ", out.dtype, out.shape);
  std::fill_n(out.as<int64_t>(), out.numel(), 0);
  return out.as<int64_t>();
}

int64_t rows_each(int64_t work) { return std::max<int64_t>(1, kGrain / std::max<int64_t>(1, work)); }

int64_t index_at(const StridedView& v, int64_t i) {
  return v.dtype == kInt64 ? v.as<int64_t>()[i * v.strides[0]] : v.as<int32_t>()[i * v.strides[0]];
}

void check_index(const char* name, int64_t value, int64_t position, int64_t limit) {
  WEFT_CHECK_AS(kOutOfRange, value >= 0 && value < limit, name, ": index ", value, " at position ", position,
                " is out of range; need 0 to ", limit - 1);
}

}  // namespace

int64_t exact_copy_bytes(const StridedView& v) { return (v.numel() * 8 + 63) / 64 * 64; }

void exact_carry(int64_t* limbs) {
  for (int j = 0; j < kTop; ++j) {
    const int64_t carry = (limbs[j] + kHalf) >> kExactBits;
    limbs[j] -= carry << kExactBits;
    limbs[j + 1] += carry;
  }
  int64_t& counts = limbs[kCounts];
  if (limbs[kTop] >= kInfiniteTop || limbs[kTop] <= -kInfiniteTop) {
    counts += int64_t{1} << (limbs[kTop] > 0 ? kCountBits : 0);
    std::fill(limbs, limbs + kExactDigits, 0);
  }
  if (counts == 0) return;
  int64_t once = 0;
  for (int k = 0; k < 3; ++k)
    if (k == 2 ? counts >> 2 * kCountBits : counts >> k * kCountBits & kCountMask) once |= int64_t{1} << k * kCountBits;
  counts = once;
}

void exact_sum(const StridedView& x, uint32_t dim_mask, const StridedView& out, void* workspace) {
  int64_t* y = limbs_of("exact_sum", out);
  StridedView v{x.data, x.dtype, {}, {}};
  int64_t terms = 1;
  for (bool reduced : {false, true})
    for (int d = 0; d < x.shape.size(); ++d) {
      if ((dim_mask >> d & 1) != reduced) continue;
      v.shape.push_back(x.shape[d]);
      v.strides.push_back(x.strides[d]);
      if (reduced) terms *= x.shape[d];
    }
  if (x.numel() == 0) return;
  const double* t = copied(v, workspace);
  const int64_t sums = x.numel() / terms;
  const RowSum row(TermDigits(range_of_all(t, x.numel())), false);
  // A few long sums are split into parts, each with a whole number of plain runs.
  const int64_t run = 4 * kExactPlain, parts = sums < 64 ? (terms + run - 1) / run : 1;
  if (parts == 1) {
    parallel_chunks(sums, rows_each(terms), [&](int64_t begin, int64_t end) {
      for (int64_t s = begin; s < end; ++s) row(nullptr, t + s * terms, terms, y + s * kExactWidth);
    });
    return;
  }
  std::vector<int64_t> partial(static_cast<size_t>(sums * parts * kExactWidth));
  parallel_for(sums * parts, [&](int64_t task) {
    const int64_t at = task % parts * run;
    int64_t* p = &partial[static_cast<size_t>(task * kExactWidth)];
    row(nullptr, t + task / parts * terms + at, std::min(run, terms - at), p);
    exact_carry(p);
  });
  for (int64_t task = 0; task < sums * parts; ++task) {
    int64_t* to = y + task / parts * kExactWidth;
    for (int j = 0; j < kExactWidth; ++j) to[j] += partial[static_cast<size_t>(task * kExactWidth + j)];
    exact_carry(to);
  }
}

void exact_gemm(const StridedView& a, const StridedView& b, const StridedView& out, void* workspace) {
  int64_t* y = limbs_of("exact_gemm", out);
  const int64_t batch = a.shape[0], m = a.shape[1], k = a.shape[2], n = b.shape[2];
  if (batch * m * n == 0 || k == 0) return;
  const double* p = copied(a, workspace);
  const double* q = copied(permuted(b, {0, 2, 1}), static_cast<char*>(workspace) + exact_copy_bytes(a));
  const RowSum row(TermDigits(range_of_all(p, batch * m * k) * range_of_all(q, batch * n * k)), true);
  // A strip of rows of b that stays in the cache while rows of a are processed.
  const int64_t cols = std::clamp<int64_t>((1 << 14) / k, 1, n), strips = (n + cols - 1) / cols;
  const int64_t rows = std::clamp<int64_t>(rows_each(cols * k) * 4, 1, m), blocks = (m + rows - 1) / rows;
  parallel_for(batch * strips * blocks, [&](int64_t task) {
    const int64_t block = task % blocks, strip = task / blocks % strips, z = task / blocks / strips;
    for (int64_t i = block * rows; i < std::min(m, (block + 1) * rows); ++i)
      for (int64_t j = strip * cols; j < std::min(n, (strip + 1) * cols); ++j)
        row(p + (z * m + i) * k, q + (z * n + j) * k, k, y + ((z * m + i) * n + j) * kExactWidth);
  });
}

void exact_grouped_gemm(GroupedMode mode, const StridedView& a, const StridedView& b, const StridedView& offsets,
                        const StridedView& out, void* workspace) {
  int64_t* y = limbs_of("exact_grouped_gemm", out);
  const int64_t t = a.shape[0], k = a.shape[1], n = b.shape[b.shape.size() - 1], groups = offsets.shape[0] - 1;
  std::vector<int64_t> at;
  for (int64_t e = 0; e <= groups; ++e) {
    at.push_back(index_at(offsets, e));
    WEFT_CHECK_AS(kOutOfRange, at.back() >= (e ? at[static_cast<size_t>(e - 1)] : 0) && at.back() <= t,
                  "exact_grouped_dot: offsets[", e, "] is ", at.back(), "; need 0 to ", t, ", ascending");
  }
  if (out.numel() == 0 || t == 0) return;
  const bool by_rows = mode == GroupedMode::rows;
  const double* p = copied(by_rows ? a : permuted(a, {1, 0}), workspace);
  const double* q = copied(by_rows ? permuted(b, {0, 2, 1}) : permuted(b, {1, 0}),
                           static_cast<char*>(workspace) + exact_copy_bytes(a));
  const RowSum row(TermDigits(range_of_all(p, a.numel()) * range_of_all(q, b.numel())), true);
  if (by_rows) {
    parallel_chunks(t, rows_each(n * k), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t e = std::upper_bound(at.begin(), at.end(), i) - at.begin() - 1;
        if (e < 0 || e >= groups) continue;
        for (int64_t j = 0; j < n; ++j) row(p + i * k, q + (e * n + j) * k, k, y + (i * n + j) * kExactWidth);
      }
    });
    return;
  }
  parallel_chunks(groups * k, rows_each(n * t / std::max<int64_t>(1, groups)), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t from = at[static_cast<size_t>(r / k)], rows = at[static_cast<size_t>(r / k) + 1] - from;
      for (int64_t j = 0; j < n; ++j) row(p + r % k * t + from, q + j * t + from, rows, y + (r * n + j) * kExactWidth);
    }
  });
}

void exact_index_add(const StridedView& index, const StridedView& src, const StridedView& out, void* workspace) {
  int64_t* y = limbs_of("exact_index_add", out);
  const int64_t n = index.shape[0], rows = out.shape[0], width = n ? src.numel() / n : 0;
  for (int64_t i = 0; i < n; ++i) check_index("exact_index_add", index_at(index, i), i, rows);
  if (n * width == 0) return;
  const double* t = copied(src, workspace);
  const TermDigits d(range_of_all(t, n * width));
  parallel_chunks(width, rows_each(n), [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < n; ++i) {
      int64_t* to = y + index_at(index, i) * width * kExactWidth;
      for (int64_t c = begin; c < end; ++c) {
        if (d.plain) {
          add_digits(t[i * width + c], d.first, d.count, to + c * kExactWidth);
        } else {
          add_any(t[i * width + c], to + c * kExactWidth);
        }
      }
      if (n > kExactPlain && (i % kExactPlain == kExactPlain - 1 || i == n - 1))
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t c = begin; c < end; ++c) exact_carry(y + (r * width + c) * kExactWidth);
    }
  });
}

void exact_scatter_add(const StridedView& index, const StridedView& src, int dim, const StridedView& out,
                       void* workspace) {
  int64_t* y = limbs_of("exact_scatter_add", out);
  if (index.numel() == 0) return;
  const int last = index.shape.size() - 1;
  const StridedLines rows(index, last);
  for (int64_t r = 0; r < rows.count; ++r) {
    const StridedView row{rows.at(index, r, 0), index.dtype, {rows.length}, {rows.stride}};
    for (int64_t i = 0; i < rows.length; ++i)
      check_index("exact_scatter_add", index_at(row, i), r * rows.length + i, out.shape[dim]);
  }
  const double* t = copied(src, workspace);
  const TermDigits d(range_of_all(t, src.numel()));
  StridedView sums{y, kInt64, index.shape, {}}, terms{nullptr, kFloat64, index.shape, contiguous_strides(index.shape)};
  for (int k = 0; k < index.shape.size(); ++k) sums.strides.push_back(out.strides[k] / kExactWidth);
  const StridedLines lines(index, dim), from(terms, dim), to(sums, dim);
  const int64_t limit = out.shape[dim];
  // Lines along dim are disjoint.
  parallel_chunks(lines.count, rows_each(lines.length), [&](int64_t begin, int64_t end) {
    for (int64_t l = begin; l < end; ++l) {
      const StridedView line{lines.at(index, l, 0), index.dtype, {lines.length}, {lines.stride}};
      int64_t* base = y + to.offset(l) * kExactWidth;
      for (int64_t i = 0; i < lines.length; ++i) {
        const int64_t at = index_at(line, i);
        int64_t* limbs = base + at * to.stride * kExactWidth;
        const double x = t[from.offset(l) + i * from.stride];
        if (d.plain) {
          add_digits(x, d.first, d.count, limbs);
        } else {
          add_any(x, limbs);
        }
        if (lines.length > kExactPlain && (i % kExactPlain == kExactPlain - 1 || i == lines.length - 1))
          for (int64_t r = 0; r < limit; ++r) exact_carry(base + r * to.stride * kExactWidth);
      }
    }
  });
}

void exact_row_dots(const StridedView& y, const StridedView& x, const StridedView& rows, const StridedView& out,
                    void* workspace) {
  int64_t* to = limbs_of("exact_row_dots", out);
  const int64_t d = x.shape[1], k = out.shape[1], slots = rows.shape[0];
  for (int64_t s = 0; s < slots; ++s) check_index("exact_row_dots", index_at(rows, s), s, y.shape[0]);
  if (slots * d == 0) return;
  const double* p = copied(y, workspace);
  const double* q = copied(x, static_cast<char*>(workspace) + exact_copy_bytes(y));
  const RowSum row(TermDigits(range_of_all(p, y.numel()) * range_of_all(q, x.numel())), true);
  parallel_chunks(slots, rows_each(d), [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) row(p + index_at(rows, s) * d, q + s / k * d, d, to + s * kExactWidth);
  });
}

// ---- conversion back to one number ----

namespace {

struct SignificandFormat {
  int bits, least;  // bits of the significand; exponent of the smallest denormal
};

double rounded(const int64_t* limbs, const SignificandFormat& f) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const int64_t counts = limbs[kCounts];
  if (counts) [[unlikely]] {
    const bool plus = counts >> kCountBits & kCountMask, minus = counts & kCountMask;
    if (counts >> 2 * kCountBits || plus == minus) return std::numeric_limits<double>::quiet_NaN();
    return plus ? kInf : -kInf;
  }
  // Sign and magnitude: digits in [0, 2^40), the top one below 2^47.
  int64_t d[kExactDigits];
  int64_t carry = 0;
  for (int j = 0; j < kTop; ++j) {
    const int64_t v = limbs[j] + carry;
    d[j] = v & kMask;
    carry = v >> kExactBits;
  }
  d[kTop] = limbs[kTop] + carry;
  const bool negative = d[kTop] < 0;
  if (negative) {
    carry = 0;
    for (int j = 0; j < kTop; ++j) {
      const int64_t v = carry - d[j];
      d[j] = v & kMask;
      carry = v >> kExactBits;
    }
    d[kTop] = carry - d[kTop];
  }
  const double sign = negative ? -1 : 1;
  if (d[kTop] >= kInfiniteTop) return sign * kInf;
  int top = kTop;
  while (top >= 0 && d[top] == 0) --top;
  if (top < 0) return 0;
  // The three highest digits, and whether any lower digit is not 0.
  unsigned __int128 v = 0;
  for (int j = top; j > top - 3; --j) v = v << kExactBits | static_cast<uint64_t>(j >= 0 ? d[j] : 0);
  bool below = false;
  for (int j = top - 3; j >= 0; --j) below = below || d[j] != 0;
  const int unit = exponent(top) - 2 * kExactBits;
  const uint64_t high = static_cast<uint64_t>(v >> 64), low = static_cast<uint64_t>(v);
  const int last = high ? 127 - std::countl_zero(high) : 63 - std::countl_zero(low);
  const int drop = std::max(unit + last - (f.bits - 1), f.least) - unit;
  if (drop <= 0) return sign * std::ldexp(static_cast<double>(v), unit);  // fits
  if (drop > 127) return sign * 0.0;
  uint64_t q = static_cast<uint64_t>(v >> drop);
  const unsigned __int128 rest = v & ((static_cast<unsigned __int128>(1) << drop) - 1),
                          half = static_cast<unsigned __int128>(1) << (drop - 1);
  if (rest > half || (rest == half && (below || (q & 1)))) ++q;
  return sign * std::ldexp(static_cast<double>(q), unit + drop);
}

template <class T>
void finish(const StridedView& limbs, const StridedView& out, const SignificandFormat& f) {
  T* y = out.as<T>();
  const int64_t* x = limbs.as<int64_t>();
  parallel_chunks(out.numel(), kGrain / 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const double v = rounded(x + i * kExactWidth, f);
      if constexpr (sizeof(T) == 8) {
        y[i] = v;
      } else {
        y[i] = T(static_cast<float>(v));
      }
    }
  });
}

}  // namespace

void exact_finish(const StridedView& limbs, const StridedView& out) {
  WEFT_BUG_IF(!limbs.contiguous() || !out.contiguous(), "exact_finish: operands are not contiguous");
  switch (out.dtype) {
    case kFloat64:
      return finish<double>(limbs, out, {53, -1074});
    case kFloat32:
      return finish<float>(limbs, out, {24, -149});
    case kBFloat16:
      return finish<bfloat16>(limbs, out, {8, -133});
    default:
      return finish<float16>(limbs, out, {11, -24});
  }
}

}  // namespace weft::kernels
