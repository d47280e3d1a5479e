// Experts on several ranks give the bits of one device for any choices: results, gradients of tokens and weights, and
// each expert's gradient.
#include "ops/composite/layers/moe_ep.h"

#include <gtest/gtest.h>

#include "compiler/exec/compile.h"
#include "distributed/launch/world.h"
#include "framework/autodiff/grad.h"
#include "framework/testing/compare.h"
#include "framework/testing/values.h"
#include "ops/composite/layers/moe.h"
#include "ops/core/core.h"

namespace weft::dist {
namespace {

using testing::Random;
using testing::random_tensor;
using testing::same_bits;

enum class Load { kSpread, kOne, kFew };

struct Problem {
  int64_t k = 2, experts = 8, dim = 5;
  std::vector<int64_t> tokens, owned;  // numbers on each rank
  Tensor x, choices, weights, w;       // values of all ranks

  Problem(int64_t k, std::vector<int64_t> tokens, std::vector<int64_t> owned, Load load, DType dtype, uint64_t seed)
      : k(k), tokens(std::move(tokens)), owned(std::move(owned)) {
    experts = 0;
    for (int64_t n : this->owned) experts += n;
    int64_t all = 0;
    for (int64_t n : this->tokens) all += n;
    Random random(seed);
    const int64_t last = load == Load::kOne ? experts - 1 : load == Load::kFew ? 1 : experts - 1;
    x = random_tensor(dtype, {all, dim}, random);
    choices = random_tensor(kInt64, {all, k}, random, static_cast<double>(load == Load::kOne ? last : 0),
                            static_cast<double>(last));
    weights = random_tensor(kFloat32, {all, k}, random, 0, 1);
    w = random_tensor(dtype, {experts, dim, dim}, random);
  }
  static Tensor part(const Tensor& t, const std::vector<int64_t>& sizes, int rank) {
    int64_t at = 0;
    for (int p = 0; p < rank; ++p) at += sizes[static_cast<size_t>(p)];
    return contiguous(slice(t, 0, at, at + sizes[static_cast<size_t>(rank)]));
  }
};

Tensor expert(const Tensor& x, const Tensor& w, const Tensor& offsets) {
  const Tensor y = grouped_matmul(x, w, offsets);
  return y * y;
}

// Returns y, and the gradients of x, weights and w for ones at y.
std::vector<Tensor> differentiated(const Tensor& x, const Tensor& weights, const Tensor& w,
                                   const std::function<Tensor(const Tensor&, const Tensor&, const Tensor&)>& fn) {
  const std::vector<Tensor> leaves{x.requires_grad(), weights.requires_grad(), w.requires_grad()};
  const Tensor y = fn(leaves[0], leaves[1], leaves[2]);
  std::vector<Tensor> all = grad(y, leaves, {.grad_output = ones(y.shape(), {.dtype = y.dtype()})});
  all.insert(all.begin(), y);
  return all;
}

std::vector<Tensor> on_one_device(const Problem& p) {
  return differentiated(p.x, p.weights, p.w, [&](const Tensor& x, const Tensor& weights, const Tensor& w) {
    const ExpertOrder o = sort_by_expert(p.choices, p.experts);
    return combine_tokens(expert(dispatch_tokens(x, o), w, o.offsets), o, weights);
  });
}

void check(World& world, const Problem& p, double factor, bool compiled) {
  const std::vector<Tensor> want = on_one_device(p);
  std::vector<std::vector<Tensor>> got(static_cast<size_t>(world.size()));
  world.run([&](int rank) {
    ExpertParallel o{.axes = "ep", .ranks = world.size(), .num_experts = p.experts, .owned = p.owned, .factor = factor};
    o.own = p.owned[static_cast<size_t>(rank)];
    o.group_tokens = p.x.size(0);
    auto layer = [&](const Tensor& x, const Tensor& choices, const Tensor& weights, const Tensor& w) {
      return differentiated(x, weights, w, [&](const Tensor& x, const Tensor& weights, const Tensor& w) {
        const ExpertExchange e = exchange_experts(choices, o);
        return combine_from_experts(expert(dispatch_to_experts(x, e), w, e.offsets), e, weights);
      });
    };
    const Tensor x = Problem::part(p.x, p.tokens, rank), choices = Problem::part(p.choices, p.tokens, rank),
                 weights = Problem::part(p.weights, p.tokens, rank), w = Problem::part(p.w, p.owned, rank);
    got[static_cast<size_t>(rank)] =
        compiled ? compile(layer, {.numerics = "eager"})(x, choices, weights, w) : layer(x, choices, weights, w);
  });
  const char* kNames[] = {"y", "dx", "dweights", "dw"};
  for (int rank = 0; rank < world.size(); ++rank)
    for (size_t i = 0; i < 4; ++i)
      EXPECT_TRUE(
          same_bits(got[static_cast<size_t>(rank)][i], Problem::part(want[i], i == 3 ? p.owned : p.tokens, rank)))
          << "rank " << rank << ": " << kNames[i];
}

TEST(ExpertParallel, GivesTheBitsOfOneDevice) {
  World two(Mesh({{"ep", 2}})), four(Mesh({{"ep", 4}}));
  uint64_t seed = 1;
  for (Load load : {Load::kSpread, Load::kFew, Load::kOne})
    for (int64_t k : {1, 2, 3})
      for (DType dtype : {kFloat32, kBFloat16}) {
        SCOPED_TRACE(str_cat("load ", static_cast<int>(load), ", k ", k, ", ", dtype));
        check(two, {k, {6, 6}, {4, 4}, load, dtype, ++seed}, 0, false);
        check(four, {k, {5, 5, 5, 5}, {2, 2, 2, 2}, load, dtype, ++seed}, 0, false);
      }
}

TEST(ExpertParallel, TakesUnevenTokensAndExperts) {
  World three(Mesh({{"ep", 3}}));
  for (Load load : {Load::kSpread, Load::kFew, Load::kOne}) {
    SCOPED_TRACE(static_cast<int>(load));
    check(three, {2, {5, 0, 7}, {3, 2, 2}, load, kFloat64, 11}, 0, false);
    check(three, {2, {4, 4, 4}, {0, 5, 1}, load, kFloat32, 12}, 0, false);
    check(three, {1, {0, 0, 3}, {1, 1, 1}, load, kFloat32, 13}, 0, false);
  }
}

TEST(ExpertParallel, CompiledGivesTheBitsOfOneDevice) {
  World two(Mesh({{"ep", 2}})), three(Mesh({{"ep", 3}}));
  check(two, {2, {9, 9}, {4, 4}, Load::kSpread, kFloat32, 21}, 0, true);
  check(two, {2, {9, 9}, {4, 4}, Load::kOne, kBFloat16, 22}, 0, true);
  check(three, {3, {5, 2, 7}, {3, 2, 2}, Load::kSpread, kFloat32, 23}, 0, true);
}

TEST(ExpertParallel, RoomIsTheFactorsAndNoMore) {
  World two(Mesh({{"ep", 2}}));
  // Factor 1.5 of an even load: room for 18 rows where 12 come on average.
  const Problem even(1, {12, 12}, {2, 2}, Load::kSpread, kFloat32, 31);
  const int64_t first = [&] {
    int64_t n = 0;
    for (int64_t e : even.choices.to_vector<int64_t>()) n += e < 2;
    return n;
  }();
  ASSERT_TRUE(first >= 6 && first <= 18) << first;
  check(two, even, 1.5, false);
  const Problem skewed(1, {12, 12}, {2, 2}, Load::kOne, kFloat32, 32);
  EXPECT_NE(
      testing::error_of([&] {
        check(two, skewed, 1.5, false);
      }).find("all_to_all_rows: rank 1 receives 24 rows; the bound is 18 by factor 1.5; need a factor of 2, or 0"),
      std::string::npos)
      << testing::error_of([&] { check(two, skewed, 1.5, false); });
  check(two, skewed, 2, false);  // never more rows than exist
}

TEST(ExpertParallel, BadNumbersAreOneSentence) {
  const Tensor choices = zeros({3, 2}, {.dtype = kInt64});
  EXPECT_EQ(testing::error_of([&] {
              exchange_experts(choices, {.ranks = 2, .num_experts = 4, .owned = {1, 2}});
            }),
            "exchange_experts: experts of the ranks are [1, 2]; need 2 numbers that add up to 4");
  EXPECT_EQ(testing::error_of([&] { exchange_experts(choices, {.ranks = 2, .num_experts = 3}); }),
            "exchange_experts: this rank owns -1 experts of [2, 1]; need one of these numbers");
  EXPECT_EQ(
      testing::error_of([&] { exchange_experts(choices, {.ranks = 2, .num_experts = 4, .factor = -1}); }),
      "exchange_experts: 4 experts on 2 ranks with factor -1; need one or more of each and a factor of 0 or more");
}

}  // namespace
}  // namespace weft::dist
