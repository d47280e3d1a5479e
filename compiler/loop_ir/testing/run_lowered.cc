#include "compiler/loop_ir/testing/run_lowered.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "compiler/loop_ir/interpret.h"
#include "ops/numerics/reduce_order.h"

namespace weft::loop_ir {
namespace {

using kernels::Rd;

template <class T>
T identity(Rd rd) {
  switch (rd) {
    case Rd::max:
      return std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity()
                                                  : std::numeric_limits<T>::lowest();
    case Rd::min:
      return std::numeric_limits<T>::has_infinity ? std::numeric_limits<T>::infinity() : std::numeric_limits<T>::max();
    case Rd::prod:
      return T{1};
    default:
      return T{0};
  }
}

template <class T>
T combine(Rd rd, T a, T b) {
  switch (rd) {
    case Rd::max:
      return (a > b) | (a != a) ? a : b;
    case Rd::min:
      return (a < b) | (a != a) ? a : b;
    case Rd::prod:
      return a * b;
    default:
      return a + b;
  }
}

void store(const StridedView& out, int64_t at, double value, int64_t whole) {
  if (out.dtype == kInt64) {
    out.as<int64_t>()[at] = whole;
  } else if (out.dtype == kFloat64) {
    out.as<double>()[at] = value;
  } else if (out.dtype == kBFloat16) {
    out.as<bfloat16>()[at] = bfloat16(static_cast<float>(value));
  } else if (out.dtype == kFloat16) {
    out.as<float16>()[at] = float16(static_cast<float>(value));
  } else {
    out.as<float>()[at] = static_cast<float>(value);
  }
}

/// Combines neighbours first, then neighbours of neighbours: the tree of reduce_order.h over `n` values `step` apart.
template <class T>
T tree(Rd rd, T* v, int64_t n, int64_t step) {
  for (int64_t s = 1; s < n; s *= 2)
    for (int64_t i = 0; i + s < n; i += 2 * s) v[i * step] = combine(rd, v[i * step], v[(i + s) * step]);
  return v[0];
}

class Driver {
 public:
  Driver(const Lowered& low, std::span<const StridedView> in, std::span<const StridedView> out, const float* tile)
      : low_(low), out_(out) {
    for (size_t i = 0; i < low.bound.size(); ++i) {
      const BoundOperand& b = low.bound[i];
      if (static_cast<int32_t>(i) == low.tile) {
        ptr_.push_back(const_cast<float*>(tile));
      } else {
        const StridedView& v = b.output ? out[b.index] : in[b.index];
        ptr_.push_back(static_cast<char*>(v.data) + b.offset * itemsize(v.dtype));
      }
      strides_.insert(strides_.end(), b.strides.begin(), b.strides.end());
      index_strides_.push_back(b.index_stride);
    }
    scratch_.resize(low.scratch_floats() + 16);
    columns_.resize(low.columns.size());
    partials_.resize(low.partials.size());
    column_.resize(low.columns.size());
    partial_.resize(low.partials.size());
  }

  bool run() {
    const int64_t points = low_.outer_points(), lanes = low_.lanes();
    if (!low_.columns.empty()) {
      run_columns(points, lanes);
    } else if (low_.kernel.mode == Mode::kSplit) {
      const int64_t blocks = (lanes + kReduceBlock - 1) / kReduceBlock;
      for (auto& p : partials_) p.resize(points * blocks);
      call(0, points, 1, 0, lanes);
      for (const Finish& f : low_.partials) finish_partial(f, points / low_.joined, blocks * low_.joined);
    } else {
      call(0, points, 1, 0, lanes);
    }
    return !bad_;
  }

 private:
  void call(int64_t o0, int64_t o1, int64_t step, int64_t l0, int64_t l1) {
    for (size_t i = 0; i < columns_.size(); ++i) column_[i] = columns_[i].data();
    for (size_t i = 0; i < partials_.size(); ++i) partial_[i] = partials_[i].data();
    const Args args{ptr_.data(),        strides_.data(),       low_.extents.data(),
                    low_.params.data(), scratch_.data(),       column_.data(),
                    partial_.data(),    index_strides_.data(), &bad_};
    interpret(low_.kernel, args, o0, o1, step, l0, l1);
  }

  template <class F>
  static void by_type(Type t, F f) {
    if (t == Type::f64) return f(double{});
    if (t == Type::i64) return f(int64_t{});
    f(float{});
  }

  void run_columns(int64_t points, int64_t lanes) {
    const int64_t blocks = (points + kReduceBlock - 1) / kReduceBlock;
    std::vector<std::vector<std::vector<double>>> rows(columns_.size());  // column -> [block][16 * lanes], as bytes
    for (int64_t b = 0; b < blocks; ++b)
      for (int lane = 0; lane < kReduceLanes; ++lane) {
        for (const Finish& f : low_.columns) {
          columns_[f.slot].assign(lanes, 0);
          by_type(f.type, [&](auto zero) {
            using T = decltype(zero);
            std::fill_n(reinterpret_cast<T*>(columns_[f.slot].data()), lanes, identity<T>(f.rd));
          });
        }
        call(b * kReduceBlock + lane, std::min(points, (b + 1) * kReduceBlock), kReduceLanes, 0, lanes);
        for (const Finish& f : low_.columns) {
          if (lane == 0) rows[f.slot].push_back({});
          auto& v = rows[f.slot].back();
          v.insert(v.end(), columns_[f.slot].begin(), columns_[f.slot].end());
        }
      }
    for (const Finish& f : low_.columns)
      by_type(f.type, [&](auto zero) {
        using T = decltype(zero);
        for (int64_t l = 0; l < lanes; ++l) {
          std::vector<T> of_block;
          for (auto& block : rows[f.slot]) {
            T v[kReduceLanes];
            for (int k = 0; k < kReduceLanes; ++k) v[k] = reinterpret_cast<T*>(block.data() + k * lanes)[l];
            for (int s = kReduceLanes / 2; s > 0; s /= 2)
              for (int k = 0; k < s; ++k) v[k] = combine(f.rd, v[k], v[k + s]);
            of_block.push_back(v[0]);
          }
          const T sum = tree(f.rd, of_block.data(), static_cast<int64_t>(of_block.size()), 1);
          store(out_[f.output], l, static_cast<double>(sum), static_cast<int64_t>(sum));
        }
      });
  }

  void finish_partial(const Finish& f, int64_t points, int64_t blocks) {
    by_type(f.type, [&](auto zero) {
      using T = decltype(zero);
      T* p = reinterpret_cast<T*>(partials_[f.slot].data());
      for (int64_t o = 0; o < points; ++o) {
        const T sum = tree(f.rd, p + o * blocks, blocks, 1);
        store(out_[f.output], o, static_cast<double>(sum), static_cast<int64_t>(sum));
      }
    });
  }

  const Lowered& low_;
  std::span<const StridedView> out_;
  std::vector<void*> ptr_;
  std::vector<int64_t> strides_, index_strides_;
  int32_t bad_ = 0;
  std::vector<float> scratch_;
  std::vector<std::vector<double>> columns_, partials_;  // space for any type
  std::vector<void*> column_, partial_;
};

}  // namespace

bool run_lowered(const Lowered& low, std::span<const StridedView> in, std::span<const StridedView> out,
                 const float* tile) {
  return Driver(low, in, out, tile).run();
}

}  // namespace weft::loop_ir
