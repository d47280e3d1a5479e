// Whole kernels: two products of matrices through the emulation equal the reference, in any order of threads, and
// compile for the devices that they are for.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "compiler/cuda/emulate/emulate.h"
#include "compiler/cuda/emulate/gemm_kernels.h"
#include "compiler/cuda/emulate/tensor_map.h"
#include "compiler/cuda/nvrtc/compile_check.h"

namespace weft::cuda {
namespace {

struct Case {
  int m, n, k;
  std::vector<uint16_t> a, b;
  std::vector<float> c;
  Case(int m_, int n_, int k_) : m(m_), n(n_), k(k_), a(m * k), b(n * k), c(m * n, -1e30f) {
    uint32_t state = 7;
    for (std::vector<uint16_t>* v : {&a, &b})
      for (uint16_t& x : *v) {
        state = state * 1664525 + 1013904223;
        x = static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(state >> 8) / (1 << 23) - 1.0f) >> 16);
      }
  }
  static double value(uint16_t x) { return std::bit_cast<float>(uint32_t{x} << 16); }
  // Each of the k / 16 steps rounds once to f32.
  void expect() const {
    int wrong = 0;
    for (int i = 0; i < m; ++i)
      for (int j = 0; j < n; ++j) {
        double sum = 0, size = 0;
        for (int l = 0; l < k; ++l) {
          const double product = value(a[i * k + l]) * value(b[j * k + l]);
          sum += product;
          size += std::abs(product);
        }
        const double bound = (k / 16 + 2) * size * 0x1p-24;
        if (!(std::abs(c[i * n + j] - sum) <= bound) && ++wrong < 5)
          ADD_FAILURE() << i << ", " << j << ": " << c[i * n + j] << ", not " << sum;
      }
    EXPECT_EQ(wrong, 0);
  }
};

TEST(Gemm, CpAsyncLdmatrixMma) {
  const Kernel k = mma_gemm();
  Emulated e({&k, 1});
  for (auto [m, n, depth, seed] : {std::tuple{64, 64, 32, 1}, {64, 64, 160, 2}, {70, 130, 72, 3}, {1, 3, 8, 4}}) {
    Case c(m, n, depth);
    e.set_seed(seed);
    e.forget_ranges();
    e.allow("a", c.a.data(), c.a.size() * 2, false);
    e.allow("b", c.b.data(), c.b.size() * 2, false);
    e.allow("c", c.c.data(), c.c.size() * 4);
    e.launch("mma_gemm", {.x = (c.n + 63u) / 64, .y = (c.m + 63u) / 64},
             GemmParams{c.a.data(), c.b.data(), c.c.data(), m, n, depth});
    c.expect();
  }
}

TEST(Gemm, TmaWgmma) {
  const Kernel k = wgmma_gemm();
  Emulated e({&k, 1});
  for (auto [m, n, depth, seed] : {std::tuple{128, 64, 64, 1}, {128, 64, 512, 2}, {200, 100, 136, 3}, {1, 3, 8, 4}}) {
    Case c(m, n, depth);
    e.set_seed(seed);
    TmaGemmParams p{};
    const uint64_t ea[] = {static_cast<uint64_t>(depth), static_cast<uint64_t>(m)},
                   eb[] = {static_cast<uint64_t>(depth), static_cast<uint64_t>(n)},
                   stride[] = {static_cast<uint64_t>(depth) * 2};
    const uint32_t box_a[] = {64, 128}, box_b[] = {64, 64};
    encode_tensor_map(p.a, 2, c.a.data(), ea, stride, box_a, 128);
    encode_tensor_map(p.b, 2, c.b.data(), eb, stride, box_b, 128);
    p.c = c.c.data();
    p.m = m;
    p.n = n;
    p.k = depth;
    e.launch("wgmma_gemm", {.x = (c.n + 63u) / 64, .y = (c.m + 127u) / 128}, p);
    c.expect();
  }
}

TEST(Gemm, NvrtcCompiles) {
  const std::vector<Kernel> kernels = {mma_gemm(), wgmma_gemm()};
  WEFT_EXPECT_COMPILES(kernels);
}

}  // namespace
}  // namespace weft::cuda
