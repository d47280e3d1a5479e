#include "ops/core/indexing/index.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "framework/autodiff/grad.h"
#include "framework/dispatch/interpreter.h"
#include "framework/testing/gradcheck.h"
#include "ops/all_ops.h"
#include "ops/core/core.h"
#include "ops/linalg/record.h"

namespace weft {
namespace {

using testing::error_of;
using V = std::vector<float>;
using I = std::vector<int64_t>;

Tensor counting(const Shape& shape) { return reshape(arange(shape.numel(), {.dtype = kFloat32}), shape); }
Tensor ints(const I& v, const Shape& shape) { return Tensor::from_vector(v, shape); }

TEST(Index, Select) {
  const Tensor x = counting({3, 2});
  EXPECT_EQ(index_select(x, 0, ints({2, 0, 2}, {3})).to_vector<float>(), (V{4, 5, 0, 1, 4, 5}));
  EXPECT_EQ(index_select(x, -1, ints({1}, {1}).to(kInt32)).to_vector<float>(), (V{1, 3, 5}));
  EXPECT_EQ(embedding(ints({1, 2, 0, 0}, {2, 2}), x).shape(), Shape({2, 2, 2}));
  EXPECT_EQ(embedding(ints({1}, {}), x).to_vector<float>(), (V{2, 3}));
  EXPECT_NE(error_of([&] { embedding(x, ints({1}, {1})); }).find("the order is embedding(indices, weight)"),
            std::string::npos);
  EXPECT_THROW(index_select(x, 0, ints({3}, {1})), Error);
}

TEST(Index, GatherAndScatter) {
  const Tensor x = counting({2, 3});
  EXPECT_EQ(gather(x, 1, ints({2, 0, 1, 1}, {2, 2})).to_vector<float>(), (V{2, 0, 4, 4}));
  EXPECT_EQ(take_along_dim(x, ints({1, 0}, {1, 2}), 1).to_vector<float>(), (V{1, 0, 4, 3}));
  EXPECT_EQ(scatter_add(zeros({2, 3}), 1, ints({2, 2, 0, 1}, {2, 2}), ones({2, 2})).to_vector<float>(),
            (V{0, 0, 2, 1, 1, 0}));
  EXPECT_EQ(scatter_add(zeros({3}), 0, ints({1}, {1}), counting({5}) + 4.0).to_vector<float>(), (V{0, 4, 0}));
  EXPECT_EQ(index_add(zeros({2, 3}), 1, ints({2, 2}, {2}), ones({2, 2})).to_vector<float>(), (V{0, 0, 2, 0, 0, 2}));
  EXPECT_EQ(error_of([&] { gather(x, 1, x); }), "gather: index is f32[2, 3]; need integers");
}

TEST(Index, Counting) {
  EXPECT_EQ(one_hot(ints({0, 2, 5}, {3}), 3).to_vector<int64_t>(), (I{1, 0, 0, 0, 0, 1, 0, 0, 0}));
  EXPECT_EQ(histogram(ints({0, 2, 2, 3}, {2, 2}), 4).to_vector<int64_t>(), (I{1, 0, 2, 1}));
  const Tensor x = counting({3});
  EXPECT_EQ(masked_fill(x, gt(x, 0.5), -1.0).to_vector<float>(), (V{0, -1, -1}));
}

TEST(Index, Order) {
  const Tensor x = Tensor::from_vector({3, 1, 2, 1}, {4});
  const Sorted up = sort(x);
  EXPECT_EQ(up.values.to_vector<float>(), (V{1, 1, 2, 3}));
  EXPECT_EQ(up.indices.to_vector<int64_t>(), (I{1, 3, 2, 0}));
  EXPECT_EQ(argsort(x, 0, true).to_vector<int64_t>(), (I{0, 2, 1, 3}));
  const TopK best = topk(x, 2);
  EXPECT_EQ(best.values.to_vector<float>(), (V{3, 2}));
  EXPECT_EQ(topk(x, 2, 0, false).indices.to_vector<int64_t>(), (I{1, 3}));
  EXPECT_EQ(error_of([&] { topk(x, 5); }), "topk: k is 5 of dim 0 of [4]; need 0 to 4");
}

TEST(Index, DynamicSlices) {
  const Tensor cache = zeros({2, 4}), pos = ints({1}, {});
  const Tensor y = dynamic_update_slice(cache, ones({2, 2}), {0, pos});
  EXPECT_EQ(y.to_vector<float>(), (V{0, 1, 1, 0, 0, 1, 1, 0}));
  EXPECT_EQ(cache.to_vector<float>(), V(8, 0));
  EXPECT_EQ(dynamic_slice(counting({2, 4}), {1, pos}, {1, 3}).to_vector<float>(), (V{5, 6, 7}));
  EXPECT_EQ(error_of([&] {
              dynamic_update_slice(cache, ones({2, 2}), {0, 3});
            }),
            "dynamic_update_slice: start 3 of dim 1 puts a block [2, 2] outside [2, 4]; need 0 to 2");
}

TEST(Index, Derivatives) {
  testing::Random random(3);
  // No two elements of x are close: a difference quotient must not see them change order.
  const Tensor x = reshape(remainder(arange(20, {.dtype = kFloat64}) * 7.0, 20.0) * 0.1 - 1.0, {4, 5});
  const Tensor u = testing::random_tensor(kFloat64, {4, 5}, random);
  const Tensor at = ints({4, 0, 0, 2, 1, 1, 3, 3, 2, 0, 4, 4}, {4, 3}), rows = ints({3, 0, 3}, {3}),
               pos = ints({1}, {});
  using Fn = std::function<Tensor(const Tensor&, const Tensor&)>;
  const std::vector<std::pair<const char*, Fn>> fns = {
      {"gather", [&](auto& a, auto& b) { return square(gather(a, 1, at)) * gather(b, 1, at); }},
      {"scatter_add", [&](auto& a, auto& b) { return square(scatter_add(a, 1, at, square(b))); }},
      {"index_select", [&](auto& a, auto& b) { return square(index_select(a, 0, rows)) + sum(b); }},
      {"index_select dim 1", [&](auto& a, auto& b) { return square(index_select(a, 1, rows)) * sum(b); }},
      {"index_add", [&](auto& a, auto& b) { return square(index_add(a, 1, rows, square(b.slice(1, 0, 3)))); }},
      {"update",
       [&](auto& a, auto& b) {
         return square(dynamic_update_slice(a, square(b.slice(1, 0, 2)), {0, pos}));
       }},
      {"dynamic_slice",
       [&](auto& a, auto& b) {
         return square(dynamic_slice(a, {pos, 0}, {2, 5})) * sum(b);
       }},
      {"sort", [&](auto& a, auto& b) { return sort(a, 1).values * square(b); }},
      {"topk", [&](auto& a, auto& b) { return square(topk(a * 2.0, 3, 0).values) * sum(b); }},
      {"masked", [&](auto& a, auto& b) { return square(masked_fill(a, gt(b, 0.0), 2.0)) * b; }},
  };
  for (const auto& [name, fn] : fns) {
    SCOPED_TRACE(name);
    const Fn& f = fn;
    auto g = [&f](std::span<const Tensor> in) { return std::vector<Tensor>{f(in[0], in[1])}; };
    EXPECT_TRUE(testing::gradcheck(g, {x, u}));
    EXPECT_TRUE(testing::gradcheck(g, {x, u}, {.captured = true}));
    EXPECT_TRUE(testing::gradgradcheck(g, {x, u}));
  }
}

TEST(DebugPrint, PrintsAtRunTime) {
  ::testing::internal::CaptureStderr();
  const Tensor x = full({2}, 1.5).requires_grad();
  const Tensor y = debug_print(x, "x");
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("x = "), std::string::npos);
  EXPECT_EQ(grad(sum(y * y), {x})[0].to_vector<float>(), (V{3, 3}));
  const TensorType t = x.type();
  ::testing::internal::CaptureStderr();
  Ref<Graph> g = capture_graph(
      [](std::span<const Tensor> in) {
        debug_print(in[0], "later");
        return std::vector<Tensor>{in[0]};
      },
      {&t, 1});
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  ::testing::internal::CaptureStderr();
  interpret(*g, {{full({2}, 7)}});
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("later = "), std::string::npos);
}

TEST(AllOps, NamesAreDistinctAndRecordsComplete) {
  EXPECT_EQ(op_table().find("dot"), &dot_op);
  EXPECT_EQ(op_table().find("nothing"), nullptr);
  for (const OpDef* op : all_ops()) {
    SCOPED_TRACE(op->name);
    EXPECT_EQ(op_table().find(op->name), op);
    EXPECT_NE(std::string(op->doc), "");
    EXPECT_TRUE(op->infer);
    if (op->is(kStructural)) continue;
    EXPECT_TRUE(op->kernel || op->decompose);
    EXPECT_TRUE(op->dims);
    EXPECT_TRUE(op->vjp || op->is(kNotDifferentiable));
    // Attention takes graphs; sends and started collectives need a peer or a wait: their own tests call them.
    const auto own = linalg_ops();  // results that are not unique: their own tests call them, too
    EXPECT_TRUE(op->samples || op->decompose || op->is(kOrdered) || std::find(own.begin(), own.end(), op) != own.end());
    if (!op->samples) continue;
    bool runs = false, fails = false;
    for (const internal::Sample& s : op->samples()) (s.error.empty() ? runs : fails) = true;
    EXPECT_TRUE(runs);
  }
}

TEST(Index, SumsOfSmallIntegersAreWhole) {
  const Tensor at = zeros({1000}, {.dtype = kInt64});
  for (DType t : {kInt16, kInt32}) {
    const Tensor minus = full({1000}, -1, {.dtype = t});
    EXPECT_EQ(scatter_add(zeros({1}, {.dtype = t}), 0, at, minus).to_vector<int64_t>(), std::vector<int64_t>{-1000});
    EXPECT_EQ(index_add(zeros({1}, {.dtype = t}), 0, at, minus).to_vector<int64_t>(), std::vector<int64_t>{-1000});
  }
  const Tensor wrapped = scatter_add(zeros({1}, {.dtype = kInt8}), 0, at, full({1000}, 1, {.dtype = kInt8}));
  EXPECT_EQ(wrapped.to_vector<int64_t>(), std::vector<int64_t>{1000 - 1024});
}

}  // namespace
}  // namespace weft
