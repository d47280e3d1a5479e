// Thousands of random graphs of ops, by seed: compiled, they give the bits of eager with any number of threads, on
// generated kernels and on the interpreter that serves where there is no compiler. 16-bit graphs do so with numerics
// "eager"; with numerics "fast" each kernel stays within the bound that verification derives for it.
#include <gtest/gtest.h>

#include "compiler/exec/testing/test_programs.h"
#include "framework/autodiff/grad.h"
#include "framework/base/thread_pool.h"
#include "ops/composite/composite.h"
#include "ops/core/core.h"

namespace weft {
namespace {

using testing::Random;
using testing::random_tensor;
using testing::same_bits;
using Tensors = std::vector<Tensor>;

// Lengths around the vectors' ends and blocks of reductions.
constexpr int64_t kLengths[] = {1, 2, 3, 5, 8, 15, 16, 17, 24, 31, 33, 48, 64, 70, 130};

// The dims and dtype that a seed's values share, and its inputs.
struct Setting {
  int64_t a, b, c;
  DType dtype;
  explicit Setting(Random& r) {
    auto length = [&] { return kLengths[r.bits() % std::size(kLengths)]; };
    a = length(), b = length(), c = 1 + static_cast<int64_t>(r.bits() % 5);
    const uint64_t kind = r.bits() % 8;
    dtype = kind < 4 ? kFloat32 : kind < 6 ? kBFloat16 : kind == 6 ? kFloat16 : kFloat64;
  }
};

Tensors inputs_of(uint64_t seed) {
  Random r(seed);
  const Setting s(r);
  Tensors in;
  for (const Shape& shape : {Shape{s.a, s.b}, Shape{s.b}, Shape{s.a, 1}, Shape{s.c, s.a, s.b}, Shape{s.b, s.a}})
    in.push_back(random_tensor(s.dtype, shape, r, -2, 2));
  in[0] = testing::with_layout(in[0], testing::kLayouts[r.bits() % std::size(testing::kLayouts)]);
  return in;
}

// The same seed makes the same graph.
class RandomGraph {
 public:
  RandomGraph(uint64_t seed, Tensors in) : r_(seed), s_(r_), in_(std::move(in)), values_(in_) {
    r_ = Random(seed * 31 + 5);
  }

  Tensors run() {
    const bool differentiate = pick(3) == 0;
    for (int i = 4 + pick(12); i > 0; --i) values_.push_back(op());
    Tensors out;
    if (differentiate) {
      Tensor loss = values_.back().to(kFloat32).sum();
      for (int i = 0; i < 3; ++i) loss = loss + mean(tanh(any()).to(kFloat32));
      out = grad(loss, {in_[0], in_[1], in_[3]});
      out.push_back(loss);
    }
    for (int i = 1 + pick(3); i > 0; --i) out.push_back(any());
    out.push_back(values_.back());
    return out;
  }

 private:
  int pick(int n) { return static_cast<int>(r_.bits() % n); }
  int64_t dim_of(const Tensor& x) { return x.dim() ? pick(static_cast<int>(x.dim())) : 0; }
  // Late values more often: deep graphs.
  const Tensor& any() {
    const int n = static_cast<int>(values_.size());
    return values_[pick(3) ? n - 1 - pick(std::min(n, 4)) : pick(n)];
  }
  static bool broadcasts(const Tensor& x, const Tensor& y) {
    for (int64_t i = 1; i <= std::min<int64_t>(x.dim(), y.dim()); ++i) {
      const int64_t m = x.size(-i), n = y.size(-i);
      if (m != n && m != 1 && n != 1) return false;
    }
    return x.numel() * y.numel() < 1 << 22;
  }
  Tensor fitting(const Tensor& x) {
    for (int i = 0; i < 8; ++i)
      if (const Tensor& y = any(); broadcasts(x, y) && y.dtype() == x.dtype()) return y;
    return x;
  }

  Tensor op() {
    const Tensor x = any();
    switch (pick(7)) {
      case 0:
        return unary(x);
      case 6:
        return x.dim() ? choice(x) : unary(x);
      case 1:
        return binary(x, fitting(x));
      case 2:
        return x.dim() ? reduction(x) : unary(x);
      case 3:
        return x.dim() ? view(x) : unary(x);
      case 4:
        return x.dim() ? composite(x) : binary(x, fitting(x));
      default:
        return x.dim() ? heavy(x) : unary(x);
    }
  }

  Tensor unary(const Tensor& x) {
    switch (pick(14)) {
      case 0:
        return exp(clamp(x, -3.0, 2.0));
      case 1:
        return tanh(x);
      case 2:
        return sigmoid(x);
      case 3:
        return sqrt(x * x + 0.5);
      case 4:
        return rsqrt(x * x + 1.0);
      case 5:
        return log(x * x + 0.5);
      case 6:
        return neg(x);
      case 7:
        return abs(x);
      case 8:
        return relu(x);
      case 9:
        return gelu(x, pick(2) ? "tanh" : "none");
      case 10:
        return silu(x);
      case 11:
        return x * 0.5 - 0.25;
      case 12:
        return x.to(kFloat32).to(x.dtype());
      default:
        return where(x > 0.0, x, x * 0.125);
    }
  }

  Tensor binary(const Tensor& x, const Tensor& y) {
    switch (pick(7)) {
      case 0:
        return x - y;
      case 1:
        return x * y * 0.5;
      case 2:
        return x / (y * y + 1.0);
      case 3:
        return maximum(x, y);
      case 4:
        return minimum(x, y);
      case 5:
        return where(x < y, y, x * 0.5);
      default:
        return x + y;
    }
  }

  Tensor reduction(const Tensor& x) {
    Dims dims{dim_of(x)};
    if (x.dim() == 3 && pick(3) == 0) dims = pick(2) ? Dims{0, 1} : Dims{1, 2};
    if (pick(8) == 0) dims = {};
    const bool keep = pick(2);
    switch (pick(6)) {
      case 0:
        return mean(x, dims, keep);
      case 1:
        return amax(x, dims, keep);
      case 2:
        return amin(x, dims, keep);
      case 3:
        return logsumexp(x, {dim_of(x)}, keep);
      case 4:
        return x - mean(x, {dim_of(x)}, true);
      default:
        return sum(x, dims, keep) * 0.125;
    }
  }

  Tensor view(const Tensor& x) {
    const int64_t d = dim_of(x), n = x.size(d);
    switch (pick(9)) {
      case 0:
        return x.transpose(d, dim_of(x));
      case 1:
        return x.slice(d, n / 3, n, 1 + pick(2));
      case 2:
        return x.reshape({-1});
      case 3:
        return x.unsqueeze(d);
      case 4:
        return cat({x, x.slice(d, 0, (n + 1) / 2)}, d);
      case 5:
        return pad(x, {pick(3), pick(3)}, 0.5);
      case 6:
        return flip(x, d);
      case 7:
        return x.dim() < 3 ? x.unsqueeze(0).expand(grown(x)) * 0.5 : x[0];
      default:
        return select(x, d, n / 2);
    }
  }

  Tensor composite(const Tensor& x) {
    const int64_t d = dim_of(x), last = x.size(-1);
    switch (pick(6)) {
      case 0:
        return softmax(x, d);
      case 1:
        return log_softmax(x, d);
      case 2:
        return layer_norm(x, {last});
      case 3:
        return rms_norm(x, {last});
      case 4:
        return softmax(masked_fill(x, x > 1.0, -1e4), -1);
      default:
        return x * rsqrt(mean(x * x, {d}, true) + 1e-5);
    }
  }

  Tensor heavy(const Tensor& x) {
    const int64_t d = dim_of(x), n = x.size(d);
    switch (pick(5)) {
      case 0:
        return x.dim() == 2 ? gelu(matmul(x, x.transpose(0, 1)) * 0.125, "tanh") : x * 0.5;
      case 1:
        return cumsum(x, d) * 0.125;
      case 2:
        return index_select(x, d, indices(n)) * 0.5;
      case 3: {
        const Tensor to = indices(n), from = flip(to, 0);
        return index_add(x, d, to, index_select(x, d, from) * 0.25);
      }
      default:
        return x.dim() == 2 ? tanh(matmul(x.transpose(0, 1), relu(x)) * 0.0625) : tanh(x);
    }
  }

  /// Elements at positions that are constants, computed, or one of each row.
  Tensor choice(const Tensor& x) {
    const int64_t d = dim_of(x), n = x.size(d), last = x.size(-1);
    switch (pick(6)) {
      case 0:
        return index_select(x, d, indices(n, 2 * static_cast<int>(n))) + 0.25;
      case 1:
        return index_select(x * 0.5, d, computed(x.dim() == 1 ? x : sum(x, others(x, d)), n));
      case 2:
        return gather(x, d, computed(x, n)) * 0.5;
      case 3:
        return logsumexp(x, {-1}, true) - gather(x, -1, computed(amax(x, {-1}, true), last));
      case 4:
        return x.dim() == 2 ? embedding(computed(x, n), relu(x.transpose(0, d))).sum({-1}) * 0.25 : abs(x);
      default:
        return gather(sigmoid(x), d, computed(amin(x, {d}, true), n)) - 0.5;
    }
  }

  // Whole numbers from 0 to n - 1, two of them.
  Tensor computed(const Tensor& x, int64_t n) {
    const int a = pick(static_cast<int>(n)), b = pick(static_cast<int>(n));
    NoGrad guard;
    return where(x.detach() > 0.0, full(x.shape(), a, {.dtype = kInt64}), full(x.shape(), b, {.dtype = kInt64}));
  }
  static Dims others(const Tensor& x, int64_t d) {
    Dims dims;
    for (int64_t i = 0; i < x.dim(); ++i)
      if (i != d) dims.push_back(i);
    return dims;
  }

  Tensor indices(int64_t n, int most = 4) {
    std::vector<int64_t> v(1 + pick(most));
    for (int64_t& i : v) i = pick(static_cast<int>(n));
    return Tensor::from_vector<int64_t>(v, {static_cast<int64_t>(v.size())});
  }

  Shape grown(const Tensor& x) {
    Shape s{2};
    for (int64_t n : x.shape()) s.push_back(n);
    return s;
  }

  Random r_;
  Setting s_;
  Tensors in_, values_;
};

// One step of many graphs, so that they share a compilation.
class Batch {
 public:
  Batch(uint64_t first, int graphs) : first_(first) {
    for (int i = 0; i < graphs; ++i) {
      const Tensors in = inputs_of(first + i);
      size_ = in.size();
      for (const Tensor& t : in) in_.push_back(t.requires_grad());
    }
  }

  Tensors eager() const { return run(in_); }

  CompileStats expect_compiled_is(const Tensors& want, CompileOptions options, int threads, bool bits) const {
    const int before = num_threads();
    set_num_threads(threads);
    auto step = compile([this](const Tensors& in) { return run(in); }, options);
    const Tensors got = step(in_);
    set_num_threads(before);
    EXPECT_EQ(got.size(), want.size());
    EXPECT_EQ(step.stats().planned_peak_bytes, step.stats().measured_peak_bytes);
    for (size_t i = 0, graph = 0; bits && i < got.size(); ++i) {
      while (graph + 1 < ends_.size() && i >= ends_[graph]) ++graph;
      if (const auto same = same_bits(got[i], want[i]); !same) {
        ADD_FAILURE() << "seed " << first_ + graph << ", " << threads << " threads: " << same.message();
        break;
      }
    }
    return step.stats();
  }

 private:
  Tensors run(const Tensors& in) const {
    Tensors out;
    ends_.clear();
    for (size_t i = 0; i < in.size(); i += size_) {
      const Tensors one = RandomGraph(first_ + i / size_, Tensors(in.begin() + i, in.begin() + i + size_)).run();
      out.insert(out.end(), one.begin(), one.end());
      ends_.push_back(out.size());
    }
    return out;
  }

  uint64_t first_;
  size_t size_ = 0;
  Tensors in_;
  mutable std::vector<size_t> ends_;  // ends of each graph's outputs
};

class RandomGraphs : public ::testing::TestWithParam<int> {};

TEST_P(RandomGraphs, GeneratedKernelsGiveTheBitsOfEager) {
  constexpr int kGraphs = 24;
  const Batch batch(GetParam() * 100000 + 1, kGraphs);
  const Tensors want = batch.eager();
  CompileOptions unfused{.numerics = "eager"};
  unfused.disable = {"fuse"};
  const int64_t launches = batch.expect_compiled_is(want, unfused, 2, true).kernels;
  for (int threads : {1, 2, 3}) {
    const CompileStats stats = batch.expect_compiled_is(want, {.numerics = "eager"}, threads, true);
    EXPECT_LT(stats.kernels, launches * 2 / 3);
  }
  // Throws where a kernel leaves its bound.
  batch.expect_compiled_is(want, {}, 2, false);
}

TEST_P(RandomGraphs, TheInterpreterGivesTheBitsOfEager) {
  const std::string before = switch_value("WEFT_CXX");
  set_switch("WEFT_CXX", "/no/such/compiler");
  constexpr int kGraphs = 24, kBatches = 10;
  for (int i = 0; i < kBatches && !HasFailure(); ++i) {
    const Batch batch(GetParam() * 100000 + 50000 + i * kGraphs, kGraphs);
    const CompileStats stats = batch.expect_compiled_is(batch.eager(), {.numerics = "eager"}, 1 + i % 3, true);
    EXPECT_EQ(stats.compilations, 0);
  }
  set_switch("WEFT_CXX", before);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomGraphs, ::testing::Range(0, 8));

}  // namespace
}  // namespace weft
