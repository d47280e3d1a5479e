// Elements chosen by index inside kernels: lookups, a target's logit, rows sent to experts and back, and their
// gradients. Results have the bits of eager mode with any number of threads; an index out of range gives the op's own
// error.
#include <gtest/gtest.h>

#include "compiler/exec/testing/test_programs.h"
#include "framework/autodiff/grad.h"
#include "framework/base/testing/error_of.h"
#include "framework/base/thread_pool.h"
#include "ops/composite/composite.h"
#include "ops/core/core.h"

namespace weft {
namespace {

using testing::placed_error_of;
using testing::same_bits;
using Tensors = std::vector<Tensor>;
using ProgramFn = std::function<Tensors(const Tensors&)>;

Tensor normal(Shape shape, DType dtype = kFloat32) {
  static int seed = 0;
  manual_seed(++seed);
  return randn(shape).to(dtype);
}
Tensor ids(int64_t below, Shape shape, DType dtype = kInt64) {
  static int seed = 0;
  manual_seed(++seed);
  return randint(0, below, shape).to(dtype);
}

/// Bits of eager with 1, 2 and 3 threads and on the interpreter. Launches of the compiled step.
int64_t check(const ProgramFn& fn, Tensors in) {
  for (Tensor& t : in)
    if (is_floating(t.dtype())) t = t.requires_grad();
  const Tensors want = fn(in);
  int64_t launches = 0;
  const int before = num_threads();
  for (int threads : {1, 2, 3}) {
    set_num_threads(threads);
    auto step = compile(fn, {.numerics = "eager"});
    const Tensors got = step(in);
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_TRUE(same_bits(got[i], want[i])) << threads << " threads, result " << i << "\n" << step.report();
    EXPECT_EQ(step.stats().planned_peak_bytes, step.stats().measured_peak_bytes);
    launches = step.stats().kernels;
  }
  set_num_threads(before);
  compile(fn)(in);  // within its bounds, or throws
  return launches;
}

/// Eager and compiled steps refuse these arguments in the same words, the compiled one with the line of the op.
void expect_same_error(const ProgramFn& fn, const Tensors& good, const Tensors& bad, int line) {
  const std::string want = placed_error_of([&] { fn(bad); }, Code::kOutOfRange);
  ASSERT_NE(want, "");
  for (const char* compiler : {"", "/no/such/compiler"}) {
    const std::string before = switch_value("WEFT_CXX");
    if (*compiler) set_switch("WEFT_CXX", compiler);
    auto step = compile(fn, {.numerics = "eager"});
    const Tensors first = step(good);
    const std::string got = placed_error_of([&] { step(bad); }, Code::kOutOfRange);
    EXPECT_TRUE(got.starts_with(want)) << got << "\n" << want;
    EXPECT_NE(got.find(str_cat("choices_test.cc:", line)), got.npos) << got;
    const Tensors again = step(good);
    for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(same_bits(first[i], again[i]));
    EXPECT_LT(step.stats().kernels, compile(fn, {.disable = {"fuse"}}).stats().kernels + 3);
    set_switch("WEFT_CXX", before);
  }
}

TEST(Choices, LookupsAreScaledAndConvertedAsTheyAreRead) {
  auto lookup = [](const Tensors& x) { return Tensors{(embedding(x[0], x[1]) * 1.5 + x[2]).to(kBFloat16)}; };
  EXPECT_EQ(check(lookup, {ids(19, {6, 33}), normal({19, 40}), normal({33, 40})}), 1);
  EXPECT_EQ(check(lookup, {ids(19, {6, 33}, kInt32), normal({19, 40}), normal({33, 40})}), 1);
  // A table is computed at its reads if it is larger than the elements read from it.
  auto converted = [](const Tensors& x) { return Tensors{embedding(x[0], x[1].to(kBFloat16)) * 2.0}; };
  EXPECT_EQ(check(converted, {ids(900, {5}), normal({900, 40})}), 1);
  EXPECT_EQ(check([](const Tensors& x) { return Tensors{embedding(x[0], tanh(x[1])) * 2.0}; },
                  {ids(9, {400}), normal({9, 40})}),
            2);
}

TEST(Choices, ATargetsLogitIsReadInTheKernelOfItsRow) {
  for (DType t : {kFloat32, kBFloat16, kFloat16, kFloat64}) {
    auto loss = [](const Tensors& x) { return Tensors{cross_entropy(x[0] * 0.5, x[1], {.reduction = "none"})}; };
    EXPECT_LE(check(loss, {normal({50, 77}, t), ids(77, {50})}), 2) << to_string_view(t);
    auto both = [](const Tensors& x) {
      const Tensor l = cross_entropy(x[0], x[1], {.ignore_index = 3});
      return Tensors{l, grad(l, {x[0]})[0]};
    };
    check(both, {normal({64, 50}, t), ids(50, {64})});
  }
}

ProgramFn moe(DType, int64_t experts) {
  return [experts](const Tensors& x) {
    const Routing route = route_top_k(matmul(x[0].to(kFloat32), x[1]), {.top_k = 2});
    const ExpertOrder order = sort_by_expert(route.experts, experts);
    const Tensor rows = dispatch_tokens(x[0], order);
    const Tensor h = silu(grouped_matmul(rows, x[2], order.offsets)) * grouped_matmul(rows, x[3], order.offsets);
    const Tensor y = combine_tokens(grouped_matmul(h, x[4], order.offsets), order, route.weights) + x[0];
    Tensors out{y};
    for (Tensor& t : grad(sum(square(y.to(kFloat32))), {x[0], x[1], x[2], x[3], x[4]})) out.push_back(t);
    return out;
  };
}

TEST(Choices, RowsGoToExpertsAndBack) {
  for (DType t : {kFloat32, kBFloat16}) {
    Tensors in{normal({90, 48}, t), normal({48, 4}), normal({4, 48, 40}, t), normal({4, 48, 40}, t),
               normal({4, 40, 48}, t)};
    for (Tensor& x : in) x = x.requires_grad();
    const int64_t fused = check(moe(t, 4), in);
    auto parts = compile(moe(t, 4), {.numerics = "eager", .disable = {"fuse"}});
    parts(in);
    EXPECT_LT(fused, parts.stats().kernels / 2);
  }
}

TEST(Choices, PartsOfAProductsRowsMayBelongToNoGroup) {
  for (DType t : {kFloat32, kBFloat16})
    for (const std::vector<int64_t>& at :
         {std::vector<int64_t>{0, 10, 10, 70}, {5, 9, 20, 60}, {70, 70, 70, 70}, {0, 0, 0, 0}, {3, 40, 41, 70}}) {
      auto fn = [](const Tensors& x) {
        const Tensor y = grouped_matmul(x[0], x[1], x[3]);
        return Tensors{(relu(y + x[2]) - 0.5).to(kFloat32), y};
      };
      EXPECT_EQ(check(fn, {normal({70, 24}, t), normal({3, 24, 40}, t), normal({40}, t),
                           Tensor::from_vector<int64_t>(at, {4})}),
                1);
      auto only = [](const Tensors& x) { return Tensors{cos(grouped_matmul(x[0], x[1], x[3])) * x[2]}; };
      EXPECT_LE(check(only, {normal({70, 24}, t), normal({3, 24, 40}, t), normal({70, 40}, t),
                             Tensor::from_vector<int64_t>(at, {4}).to(kInt32)}),
                t == kFloat32 ? 1 : 2);
    }
}

TEST(Choices, BadOffsetsAreTheProductsError) {
  auto fn = [](const Tensors& x) { return Tensors{relu(grouped_matmul(x[0], x[1], x[2])) + 1.0}; };
  const Tensor a = normal({7, 8}), b = normal({2, 8, 16});
  auto at = [](std::vector<int64_t> v) { return Tensor::from_vector<int64_t>(v, {3}); };
  expect_same_error(fn, {a, b, at({0, 3, 7})}, {a, b, at({0, 3, 8})}, __LINE__ - 3);
  expect_same_error(fn, {a, b, at({0, 3, 7})}, {a, b, at({0, 5, 4})}, __LINE__ - 4);
}

TEST(Choices, AnIndexOutOfRangeIsTheOpsError) {
  const Tensor table = normal({9, 40});
  auto at = [](std::vector<int64_t> v) {
    const int64_t n = static_cast<int64_t>(v.size());
    return Tensor::from_vector<int64_t>(v, {n});
  };
  auto lookup = [](const Tensors& x) { return Tensors{index_select(x[0], 0, x[1]) * 2.0 + 1.0}; };
  const int line = __LINE__ - 1;
  for (int64_t wrong : {int64_t{9}, int64_t{-1}, INT64_MAX, INT64_MIN})
    expect_same_error(lookup, {table, at({0, 8, 3})}, {table, at({0, 8, wrong})}, line);
  expect_same_error(lookup, {table, at({0, 8}).to(kInt32)}, {table, at({0, 9}).to(kInt32)}, line);
  // The index is computed in the kernel, and only a part of the result is wanted.
  auto part = [](const Tensors& x) { return Tensors{slice(gather(exp(x[0]), 1, x[1] - 1), 0, 0, 2)}; };
  expect_same_error(part, {table, ones({9, 3}, {.dtype = kInt64})},
                    {table, cat({ones({8, 3}, {.dtype = kInt64}), full({1, 3}, 41, {.dtype = kInt64})}, 0)},
                    __LINE__ - 3);
  // A choice of a choice: all indices of both count.
  auto twice = [](const Tensors& x) {
    const Tensor a = index_select(x[0], 0, x[1]) * 0.5;
    return Tensors{index_select(a, 0, x[2]) + 1.0};
  };
  expect_same_error(twice, {table, at({1, 2, 3}), at({0, 0})}, {table, at({1, 2, 10}), at({0, 0})}, __LINE__ - 3);
  expect_same_error(twice, {table, at({1, 2, 3}), at({0, 0})}, {table, at({1, 2, 3}), at({0, 3})}, __LINE__ - 3);
  auto loss = [](const Tensors& x) {
    const Tensor picked = gather(x[0] * 2.0, -1, unsqueeze(x[1], -1));
    return Tensors{sum(logsumexp(x[0] * 2.0, -1, true) - picked)};
  };
  expect_same_error(loss, {table, at({0, 1, 2, 3, 4, 5, 6, 7, 39})}, {table, at({0, 1, 2, 3, 4, 5, 6, 40, -2})},
                    __LINE__ - 4);
}

TEST(Choices, AnIndexThatCouldBeOverwrittenIsStillNamed) {
  auto fn = [](const Tensors& x) {
    const Tensor index = cumsum(x[1], 0);  // dies in the kernel that uses it
    return Tensors{index_select(x[0], 0, index) * 3 + index};
  };
  const Tensor table = ids(100, {9});
  expect_same_error(fn, {table, ones({8}, {.dtype = kInt64})}, {table, full({8}, 2, {.dtype = kInt64})}, __LINE__ - 3);
}

}  // namespace
}  // namespace weft
