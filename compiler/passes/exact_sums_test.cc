// exact_sums on each op with sums: the result is close to the op's, and independent of order and splits.
#include "compiler/passes/exact_sums.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "compiler/passes/pass.h"
#include "compiler/passes/testing/random_ops_graph.h"
#include "framework/dispatch/capture.h"
#include "framework/dispatch/dispatch.h"
#include "framework/dispatch/interpreter.h"
#include "framework/ir/rewrite.h"
#include "framework/testing/compare.h"
#include "ops/composite/composite.h"
#include "ops/core/core.h"
#include "ops/core/indexing/moe.h"
#include "ops/core/products/exact.h"

namespace weft {
namespace {

using Tensors = std::vector<Tensor>;
using testing::same_bits;

Ref<Graph> graph_of(const TensorFn& fn, const Tensors& in) {
  std::vector<TensorType> types;
  for (const Tensor& t : in) types.push_back(t.type());
  Ref<Graph> g = capture_graph(fn, types);
  g->stage = "joint";
  return g;
}

Ref<Graph> exact_of(const Graph& g, std::vector<std::string>* notes = nullptr) {
  static constexpr Pass kPass[] = {{"exact_sums", exact_sums, "", true}};
  std::vector<PassReport> report;
  Ref<Graph> now = run_passes(make_ref<Graph>(g), kPass, {.report = &report, .facts = {.exact_sums = true}});
  if (notes) *notes = report[0].notes;
  verify(*now);
  return now;
}

std::set<std::string> ops_of(const Graph& g) {
  std::set<std::string> names;
  for (int32_t id = 0; id < g.size(); ++id) names.insert(g.node(id).op->name);
  return names;
}

Tensor normal(const Shape& shape, int seed, DType dtype = kFloat32) {
  manual_seed(seed);
  return randn(shape).to(dtype);
}

// Within a bound that holds for any order of at most `terms` additions, for results and operands around 1.
void expect_near(const TensorFn& fn, const Tensors& in, double bound, std::set<std::string> gone = {}) {
  const Ref<Graph> g = graph_of(fn, in), now = exact_of(*g);
  const Tensors want = interpret(*g, in), got = interpret(*now, in);
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_EQ(got[i].type(), want[i].type());
    const std::vector<double> a = got[i].to_vector<double>(), b = want[i].to_vector<double>();
    for (size_t k = 0; k < a.size(); ++k) ASSERT_NEAR(a[k], b[k], bound) << i << ' ' << k;
  }
  const std::set<std::string> left = ops_of(*now);
  gone.insert({"reduce_sum", "dot", "grouped_dot", "index_add"});
  for (const std::string& name : gone) EXPECT_FALSE(left.contains(name)) << now->to_string();
}

TEST(ExactSums, NothingUnlessAsked) {
  const Tensors in{normal({3, 4}, 1)};
  const Ref<Graph> g = graph_of([](std::span<const Tensor> x) { return Tensors{sum(x[0])}; }, in);
  PassContext context;
  EXPECT_FALSE(exact_sums(*g, context));
}

TEST(ExactSums, EveryOpThatSums) {
  // Operands of N(0, 1), at most 40 terms: within 40 x 40 u of each other (Higham 2002, eq. 3.5), u = 2^-24.
  const double bound = 1600 * 0x1p-24;
  expect_near([](auto x) { return Tensors{matmul(x[0], x[1])}; }, {normal({2, 5, 40}, 1), normal({2, 40, 7}, 2)},
              bound);
  expect_near([](auto x) { return Tensors{sum(x[0], 1), mean(x[0], 0), sum(x[0])}; }, {normal({5, 40}, 3)}, 4 * bound);
  const Tensor index = Tensor::from_vector<int64_t>({2, 0, 2, 1, 2, 0}, {6});
  expect_near([&](auto x) { return Tensors{index_add(x[0], 0, index, x[1])}; }, {normal({4, 9}, 4), normal({6, 9}, 5)},
              bound);
  expect_near([&](auto x) { return Tensors{index_add(zeros({4, 9}), 0, index, x[0])}; }, {normal({6, 9}, 5)}, bound);
  const Tensor where = broadcast_to(unsqueeze(index, 1), {6, 9});
  expect_near([&](auto x) { return Tensors{scatter_add(x[0], 0, where, x[1])}; },
              {normal({4, 9}, 4), normal({6, 9}, 5)}, bound, {"scatter_add"});
  expect_near([&](auto x) { return Tensors{scatter_add(x[0], 0, where, x[1])}; },
              {normal({4, 12}, 4), normal({6, 9}, 5)}, bound, {"scatter_add"});
  const Tensor experts = Tensor::from_vector<int64_t>({1, 0, 2, 1, 0, 2}, {3, 2});
  expect_near([&](auto x) { return Tensors{row_dots(x[0], x[1], expert_order(experts, 3))}; },
              {normal({6, 9}, 4), normal({3, 9}, 5)}, bound, {"row_dots"});
  const Tensor offsets = Tensor::from_vector<int64_t>({0, 4, 4, 9}, {4});
  expect_near([&](auto x) { return Tensors{grouped_matmul(x[0], x[1], offsets)}; },
              {normal({10, 8}, 6), normal({3, 8, 5}, 7)}, bound);
  expect_near(
      [](auto x) {
        return Tensors{softmax(x[0], -1), logsumexp(x[0], 1)};
      },
      {normal({3, 40}, 8)}, bound, {"softmax"});
  expect_near([](auto x) { return Tensors{flex_attention(x[0], x[1], x[2])}; },
              {normal({1, 2, 6, 8}, 9), normal({1, 2, 6, 8}, 10), normal({1, 2, 6, 8}, 11)}, bound, {"attention"});
}

TEST(ExactSums, OneTermStaysAsItIs) {
  const Tensor index = Tensor::from_vector<int64_t>({1, 0, 3}, {3, 1});
  const Tensors in{normal({3, 1}, 1), normal({3, 5}, 2)};
  const Ref<Graph> now = exact_of(*graph_of(
      [&](auto x) {
        return Tensors{sum(x[0], 1), scatter_add(x[1], 1, index, x[0])};
      },
      in));
  EXPECT_FALSE(ops_of(*now).contains("exact_finish"));
}

TEST(ExactSums, IntegersAndDoubles) {
  const Tensors in{randint(0, 9, {4, 5}), normal({4, 5}, 1, kFloat64)};
  const Ref<Graph> g = graph_of([](auto x) { return Tensors{sum(x[0], 1), sum(x[1], 1), matmul(x[1], t(x[1]))}; }, in);
  const Ref<Graph> now = exact_of(*g);
  EXPECT_TRUE(same_bits(interpret(*now, in)[0], interpret(*g, in)[0]));
  EXPECT_EQ(now->type(now->outputs[2]).dtype, kFloat64);
  EXPECT_TRUE(ops_of(*now).contains("exact_dot"));
  EXPECT_TRUE(ops_of(*now).contains("reduce_sum"));  // a sum of integers
}

TEST(ExactSums, NotesSayWhatItDidAndWhatNot) {
  std::vector<std::string> notes;
  exact_of(*graph_of(
               [](auto x) {
                 return Tensors{matmul(x[0], t(x[0])), sum(x[0]), prod(x[0], 1)};
               },
               {normal({3, 4}, 1)}),
           &notes);
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_NE(notes[0].find("reduce_prod"), std::string::npos) << notes[0];
  EXPECT_NE(notes[1].find("1 products and 1 sums"), std::string::npos) << notes[1];
}

// A plan that splits a contraction in two adds digits: the two halves by hand, as the partitioner would write them.
TEST(ExactSums, HalvesAddUpToTheWhole) {
  for (DType t : {kFloat32, kBFloat16, kFloat16, kFloat64}) {
    const Tensor a = normal({7, 64}, 1, t), b = normal({64, 5}, 2, t);
    const Attrs dims{{"a_batch", Shape{}}, {"b_batch", Shape{}}, {"a_contract", Shape{1}}, {"b_contract", Shape{0}}};
    const Tensor whole = dispatch(exact_dot_op, {&a, &b}, dims);
    for (int64_t cut : {1, 17, 32, 60}) {
      const Tensor a0 = a.slice(1, 0, cut), a1 = a.slice(1, cut, 64), b0 = b.slice(0, 0, cut), b1 = b.slice(0, cut, 64);
      const Tensor digits = dispatch(exact_dot_op, {&a0, &b0}, dims) + dispatch(exact_dot_op, {&a1, &b1}, dims);
      EXPECT_TRUE(same_bits(digits, whole)) << cut;
    }
  }
}

}  // namespace
}  // namespace weft
