#include "ops/composite/layers/moe.h"

#include <algorithm>
#include <cmath>

#include "framework/autodiff/grad.h"
#include "ops/composite/testing/composite_table.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"
#include "ops/core/products/dot.h"
#include "ops/core/reductions/reduce.h"

namespace weft::testing {
namespace {

using Args = std::span<const Tensor>;

constexpr int64_t kTokens = 6, kExperts = 4, kDim = 3;

Reals softmax_of(const Reals& x) {
  Reals p;
  Real total = 0;
  for (Real v : x) total += std::exp(v);
  for (Real v : x) p.push_back(std::exp(v) / total);
  return p;
}
std::vector<size_t> best(const Reals& x, size_t k) {
  std::vector<size_t> order(x.size());
  for (size_t i = 0; i < x.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return x[a] > x[b]; });
  order.resize(k);
  return order;
}

const Operand kLogits{Shape{kTokens, kExperts}, kFloat32, -2, 2}, kX{Shape{kTokens, kDim}},
    kChoices{Shape{kTokens, 2}, kInt64, 0, kExperts - 1}, kWeights{Shape{kTokens, 2}, kFloat32, 0.1, 0.9};

// Mixtral's rule: softmax over the chosen logits.
Reals mixtral(const std::vector<Reals>& in) {
  Reals y;
  for (int64_t t = 0; t < kTokens; ++t) {
    Reals x = row_of(in[0], t, kExperts), chosen;
    for (size_t e : best(x, 2)) chosen.push_back(x[e]);
    for (Real p : softmax_of(chosen)) y.push_back(p);
  }
  return y;
}
Reals sigmoid_route(const std::vector<Reals>& in) {
  Reals y;
  for (int64_t t = 0; t < kTokens; ++t) {
    Reals x = row_of(in[0], t, kExperts);
    for (Real& v : x) v = 1 / (1 + std::exp(-v));
    auto chosen = best(x, 2);
    for (size_t e : chosen) y.push_back(x[e] / (x[chosen[0]] + x[chosen[1]]) * Real(2.5));
  }
  return y;
}
Reals balance(const std::vector<Reals>& in) {
  Real loss = 0;
  for (int64_t e = 0; e < kExperts; ++e) {
    Real f = 0, p = 0;
    for (Real c : in[1]) f += c == e;
    for (int64_t t = 0; t < kTokens; ++t) p += in[0][t * kExperts + e];
    loss += f / kTokens * (p / kTokens);
  }
  return {loss * kExperts};
}
Reals z_loss(const std::vector<Reals>& in) {
  Real s = 0;
  for (int64_t t = 0; t < kTokens; ++t) {
    Real total = 0;
    for (Real v : row_of(in[0], t, kExperts)) total += std::exp(v);
    s += std::log(total) * std::log(total);
  }
  return {s / kTokens};
}
// Expert e multiplies by e + 1: the combined result of dispatch, an expert and combine.
Reals through_experts(const std::vector<Reals>& in) {
  Reals y;
  for (int64_t t = 0; t < kTokens; ++t)
    for (int64_t d = 0; d < kDim; ++d) {
      Real s = 0;
      for (int64_t j = 0; j < 2; ++j) s += in[2][t * 2 + j] * in[0][t * kDim + d] * (in[1][t * 2 + j] + 1);
      y.push_back(s);
    }
  return y;
}
Tensor scale_of_experts(DType t) { return arange(1.0, 5.0, TensorOptions{.dtype = t}); }

Tensor dropless(Args a) {
  ExpertOrder order = sort_by_expert(a[1], kExperts);
  Tensor identity = expand(unsqueeze(eye(kDim, -1, {.dtype = a[0].dtype()}), 0), {kExperts, kDim, kDim});
  Tensor w = identity * reshape(scale_of_experts(a[0].dtype()), {kExperts, 1, 1});
  return combine_tokens(grouped_matmul(dispatch_tokens(a[0], order), w, order.offsets), order, a[2]);
}
Tensor by_capacity(Args a) {
  CapacityPlan plan = assign_capacity(a[1], kExperts, kTokens * 2);
  Tensor y = dispatch_to_places(a[0], plan) * reshape(scale_of_experts(a[0].dtype()), {kExperts, 1, 1});
  return combine_from_places(y, plan, a[2]);
}

const std::vector<CompositeRow> kTable = {
    {"route_softmax", {kLogits}, [](Args a) { return route_top_k(a[0]).weights.to(a[0].dtype()); }, mixtral, 32},
    {"route_sigmoid",
     {kLogits},
     [](Args a) { return route_top_k(a[0], {.score = "sigmoid", .scale = 2.5}).weights.to(a[0].dtype()); },
     sigmoid_route,
     32},
    {"load_balance_loss",
     {{Shape{kTokens, kExperts}, kFloat32, 0, 1}, kChoices},
     [](Args a) { return load_balance_loss(a[0], a[1]); },
     balance,
     32,
     false,
     true},
    {"router_z_loss", {kLogits}, [](Args a) { return router_z_loss(a[0]); }, z_loss, 48, true, true},
    // The experts' rows, up to 8, are rounded once before they are added with two weights of up to 0.9.
    {"dropless", {kX, kChoices, kWeights}, dropless, through_experts, 16, true, false, 14.4L, 1},
    {"by_capacity", {kX, kChoices, kWeights}, by_capacity, through_experts, 16, true, false, 14.4L, 1},
};
WEFT_TEST_COMPOSITES(Moe, kTable);

Tensor choices(const std::vector<int64_t>& v, int64_t k) {
  return Tensor::from_vector<int64_t>(v, {static_cast<int64_t>(v.size()) / k, k});
}

TEST(Route, AllProbabilitiesSumToOneAndBiasOnlyChooses) {
  Tensor logits = Tensor::from_vector<float>({3, 2, 1, 0, 0, 1, 2, 3}, {2, 4});
  Routing plain = route_top_k(logits, {.top_k = 1, .normalize = false});
  EXPECT_EQ(plain.experts.to_vector<int64_t>(), (std::vector<int64_t>{0, 3}));
  for (float s : sum(plain.probs, -1).to_vector<float>()) EXPECT_NEAR(s, 1, 1e-6);
  Routing biased =
      route_top_k(logits, {.top_k = 1, .normalize = false, .bias = Tensor::from_vector<float>({0, 0, 5, 0}, {4})});
  EXPECT_EQ(biased.experts.to_vector<int64_t>(), (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(biased.weights.to_vector<float>()[0], plain.probs.to_vector<float>()[2]);
}

TEST(ExpertOrder, IsStableAndInvertible) {
  ExpertOrder o = sort_by_expert(choices({2, 0, 0, 2, 3, 0}, 2), 4);
  EXPECT_EQ(o.slots.to_vector<int64_t>(), (std::vector<int64_t>{1, 2, 5, 0, 3, 4}));
  EXPECT_EQ(o.tokens.to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(o.rows.to_vector<int64_t>(), (std::vector<int64_t>{3, 0, 1, 4, 5, 2}));
  EXPECT_EQ(o.counts.to_vector<int64_t>(), (std::vector<int64_t>{3, 0, 2, 1}));
  EXPECT_EQ(o.offsets.to_vector<int64_t>(), (std::vector<int64_t>{0, 3, 3, 5, 6}));
}

TEST(Capacity, FirstChoicesComeBeforeSecondOnes) {
  // Expert 0 is the second choice of token 0 and the first choice of tokens 1 and 2: with two places, token 0 gets
  // none.
  CapacityPlan plan = assign_capacity(choices({1, 0, 0, 2, 0, 1}, 2), 3, 2);
  EXPECT_EQ(plan.kept.to_vector<bool>(), (std::vector<bool>{true, false, true, true, true, true}));
  EXPECT_EQ(plan.place.to_vector<int64_t>(), (std::vector<int64_t>{2, 6, 0, 4, 1, 3}));
  EXPECT_NEAR(dropped_share(plan).item<float>(), 1. / 6, 1e-6);
  Tensor x = Tensor::from_vector<float>({1, 2, 3}, {3, 1});
  Tensor placed = dispatch_to_places(x, plan);
  EXPECT_EQ(placed.to_vector<float>(), (std::vector<float>{2, 3, 1, 3, 2, 0}));
  EXPECT_EQ(combine_from_places(placed, plan, ones({3, 2})).to_vector<float>(), (std::vector<float>{1, 4, 6}));
}

TEST(Capacity, RoundsUp) {
  EXPECT_EQ(expert_capacity(10, 2, 8, 1.0), 3);
  EXPECT_EQ(expert_capacity(1, 1, 8, 1.0), 1);
}

TEST(Capacity, WrongNumbersAreErrors) {
  constexpr int64_t kMost = INT64_MAX;
  EXPECT_EQ(error_of([] { expert_capacity(kMost, kMost, 1, 1); }),
            "expert_capacity: factor 1 gives 9223372036854775808 places for each expert; need fewer than 2^58: "
            "9223372036854775807 tokens have 9223372036854775807 choices each");
  expect_error([] { expert_capacity(8, 2, 4, INFINITY); }, "expert_capacity: factor inf gives inf places");
  expect_error([] { expert_capacity(8, 2, 4, NAN); }, "expert_capacity: 4 experts with factor nan; need positive");
  expect_error([] { expert_capacity(-8, 2, 4, 1); }, "expert_capacity: -8 tokens with 2 choices each; need 0 or more");
  const Tensor bad = choices({0, 1, 2, 3}, 2);
  const std::string what =
      "an index is not a position: index_select: index 3 at position 3 is out of range; need 0 to ";
  EXPECT_EQ(error_of([&] { assign_capacity(bad, 3, 2); }), "assign_capacity: " + what + "2");
  EXPECT_EQ(error_of([&] { count_experts(bad, 3); }), "count_experts: " + what + "2");
  EXPECT_EQ(error_of([&] { load_balance_loss(ones({2, 3}), bad); }), "load_balance_loss: " + what + "2");
  expect_error([&] { assign_capacity(bad, 4, kMost / 2); }, "have too many places; need fewer than 2^58");
  expect_error([&] { count_experts(bad, 0); }, "count_experts: num_experts is 0; need 1 or more");
}

TEST(Balance, EvenLoadGivesTopK) {
  EXPECT_NEAR(load_balance_loss(full({4, 4}, 0.25), choices({0, 1, 2, 3, 0, 1, 2, 3}, 2)).item<float>(), 2, 1e-6);
}

TEST(Balance, BiasMovesAgainstTheLoad) {
  Tensor b = update_router_bias(zeros({3}), Tensor::from_vector<int64_t>({6, 2, 4}, {3}), 0.125);
  EXPECT_EQ(b.to_vector<float>(), (std::vector<float>{-0.125, 0.125, 0}));
}

TEST(MoeErrors, NameShapes) {
  EXPECT_EQ(error_of([] {
              route_top_k(zeros({2, 4}), {.top_k = 5});
            }),
            "route_top_k: top_k is 5 of 4 experts; need 1 to 4");
  EXPECT_EQ(error_of([] {
              sort_by_expert(zeros({2, 2}), 4);
            }),
            "sort_by_expert: experts is f32[2, 2]; need integers [T, k]");
}

}  // namespace
}  // namespace weft::testing
