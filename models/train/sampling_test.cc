// Sampling gives the tokens of a sort of the whole vocabulary, without this sort.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <new>
#include <numeric>
#include <random>

#include "framework/testing/compare.h"
#include "models/train/generate.h"

namespace {
std::atomic<int64_t> allocations = 0;
}

// Counts allocations.
void* operator new(size_t bytes) {
  ++allocations;
  if (void* p = std::malloc(bytes)) return p;
  throw std::bad_alloc();
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(bytes);
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace weft::train {
namespace {

// The definition: sort all tokens, keep the first tokens, and walk through their weights.
int32_t by_sorting(std::span<const float> logits, const SampleOptions& o, double draw) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  if (o.temperature == 0) return order[0];
  size_t n = o.top_k > 0 ? std::min<size_t>(o.top_k, order.size()) : order.size();
  std::vector<double> p(n);
  double total = 0;
  for (size_t i = 0; i < n; ++i)
    total += p[i] = std::exp((static_cast<double>(logits[order[i]]) - logits[order[0]]) / o.temperature);
  if (o.top_p < 1) {
    double kept = 0;
    size_t i = 0;
    while (i < n && kept < o.top_p * total) kept += p[i++];
    n = std::max<size_t>(i, 1);
    total = kept;
  }
  double top = 0;
  for (size_t i = 0; i < n; ++i) top = std::max(top, p[i]);
  while (n > 1 && p[n - 1] < o.min_p * top) --n;
  total = std::accumulate(p.begin(), p.begin() + static_cast<ptrdiff_t>(n), 0.0);
  double at = draw * total;
  for (size_t i = 0; i + 1 < n; ++i) {
    at -= p[i];
    if (at < 0) return order[i];
  }
  return order[n - 1];
}

TEST(SampleToken, IsWhatSortingGives) {
  std::mt19937_64 random(7);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<double> uniform;
  for (int round = 0; round < 400; ++round) {
    std::vector<float> logits(1 + random() % 3000);
    // Every other round has many equal logits.
    for (float& v : logits) v = round % 2 ? std::round(2 * normal(random)) : 3 * normal(random);
    if (round % 5 == 0) logits[random() % logits.size()] = -std::numeric_limits<float>::infinity();
    if (!std::isfinite(*std::max_element(logits.begin(), logits.end()))) continue;
    for (double temperature : {0.0, 0.3, 1.0, 5.0})
      for (int64_t top_k : {0, 1, 5, 200, 5000})
        for (double top_p : {1.0, 0.9, 0.1}) {
          const double min_p = round % 3 == 0 ? 0.2 : round % 3 == 1 ? 1.0 : 0.0;
          const SampleOptions o{.temperature = temperature, .top_k = top_k, .top_p = top_p, .min_p = min_p};
          const double draw = round % 7 == 0 ? 0 : uniform(random);
          ASSERT_EQ(sample_token(logits, o, draw), by_sorting(logits, o, draw))
              << "round " << round << ", temperature " << temperature << ", top_k " << top_k << ", top_p " << top_p
              << ", min_p " << min_p;
        }
  }
}

TEST(SampleToken, PenaltyMakesTokensOfTheTextLessLikely) {
  std::vector<float> logits{2, -2, 3, 0, -1};
  penalize(logits, std::vector<int32_t>{0, 1, 0, 3, 3}, 2);
  EXPECT_EQ(logits, (std::vector<float>{1, -4, 3, 0, -1}));
}

TEST(SampleToken, GreedyAllocatesNothing) {
  std::vector<float> logits(100000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i * 7919 % 100003);
  const int32_t want = by_sorting(logits, {.temperature = 0}, 0);
  const int64_t before = allocations;
  const int32_t got = sample_token(logits, {.temperature = 0}, 0);
  EXPECT_EQ(allocations - before, 0);
  EXPECT_EQ(got, want);
}

TEST(SampleToken, RefusesLogitsThatAreNotFinite) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const std::vector<std::vector<float>> bad{{nan, 1, 2}, {1, 2, nan}, {1, inf, 2}, {-inf, -inf}};
  for (const std::vector<float>& logits : bad)
    for (double temperature : {0.0, 1.0})
      EXPECT_EQ(testing::error_of([&] { sample_token(logits, {.temperature = temperature}, 0.5); }),
                "sample: the model's logits are not finite");
}

}  // namespace
}  // namespace weft::train
