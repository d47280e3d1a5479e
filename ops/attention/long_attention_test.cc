// 65,536 tokens with causal attention, forward and backward, in little memory: whole scores would take 17 GB.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>

#include "framework/autodiff/grad.h"
#include "ops/attention/flex_attention.h"
#include "ops/core/core.h"

namespace weft {
namespace {

int64_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int64_t kTokens = 16384;  // 65,536 take 20 minutes, and more memory for bookkeeping
#else
constexpr int64_t kTokens = 65536;
#endif

TEST(LongAttention, OneHeadOf65536WithinThreeHundredMegabytes) {
  const int64_t n = kTokens, d = 64;
  // Equal keys: every query's weights are equal, and its result is the mean of the visible values.
  const Tensor q = full({1, 1, n, d}, 0.5).requires_grad(), k = full({1, 1, n, d}, 0.25).requires_grad(),
               v = reshape(arange(n, {.dtype = kFloat32}) / static_cast<double>(n), {1, 1, n, 1}) + zeros({d});
  const Tensor values = v.detach().requires_grad();
  const AttentionResult r = flex_attention_aux(
      q, k, values, {.block_mask = create_block_mask(attention::causal(), std::nullopt, std::nullopt, n, n)});
  const Tensor column = r.out.slice(3, 0, 1).detach().contiguous();
  const float* out = column.data<float>();
  const Tensor lse = r.lse.detach();
  for (int64_t i : {int64_t{0}, int64_t{1}, int64_t{1000}, n / 2, n - 1}) {
    const double mean = static_cast<double>(i) / 2 / static_cast<double>(n);
    // Sums of i + 1 terms of the same sign, in f32.
    EXPECT_NEAR(out[i], mean, mean * static_cast<double>(i + 8) * 0x1p-24 + 0x1p-24) << i;
    EXPECT_NEAR(lse.data<float>()[i], std::log(static_cast<double>(i + 1)) + 0.125 * 8, 1e-4) << i;
  }
  const std::vector<Tensor> g = grad(sum(r.out), {values});
  // Value j counts 1 / (i + 1) in each result i >= j.
  const float* dv = g[0].data<float>();
  double tail = 0;
  int64_t j = n;
  for (int64_t at : {n - 1, n / 2, int64_t{1000}, int64_t{0}}) {
    for (; j > at; --j) tail += 1 / static_cast<double>(j);
    EXPECT_NEAR(dv[at * d], tail, tail * static_cast<double>(n - at + 8) * 0x1p-24) << at;
  }
  if (n == 65536) {
    EXPECT_LT(peak_resident_bytes(), int64_t{300} << 20);
  }
}

}  // namespace
}  // namespace weft
