// Whole kernels: two matrix products through the emulation equal the reference, in any order of threads, and compile
// for their devices.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "compiler/targets/cuda/nvrtc/testing/compile_check.h"
#include "compiler/targets/cuda/testing/emulate/emulate.h"
#include "compiler/targets/cuda/testing/emulate/gemm_kernels.h"
#include "compiler/targets/cuda/testing/emulate/tensor_map.h"
#include "framework/base/error.h"

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

void run_mma(Emulated& e, Case& c) {
  e.forget_ranges();
  e.allow("a", c.a.data(), c.a.size() * 2, false);
  e.allow("b", c.b.data(), c.b.size() * 2, false);
  e.allow("c", c.c.data(), c.c.size() * 4);
  e.launch("mma_gemm", {.x = (c.n + 63u) / 64, .y = (c.m + 63u) / 64},
           GemmParams{c.a.data(), c.b.data(), c.c.data(), c.m, c.n, c.k});
}

void run_wgmma(Emulated& e, Case& c) {
  TmaGemmParams p{};
  const uint64_t m = c.m, n = c.n, k = c.k;
  const uint64_t ea[] = {k, m}, eb[] = {k, n}, stride[] = {k * 2};
  const uint32_t box_a[] = {64, 128}, box_b[] = {64, 64};
  encode_tensor_map(p.a, 2, c.a.data(), ea, stride, box_a, 128);
  encode_tensor_map(p.b, 2, c.b.data(), eb, stride, box_b, 128);
  p.c = c.c.data();
  p.m = c.m;
  p.n = c.n;
  p.k = c.k;
  e.launch("wgmma_gemm", {.x = (c.n + 63u) / 64, .y = (c.m + 127u) / 128}, p);
}

TEST(Gemm, CpAsyncLdmatrixMma) {
  const Kernel k = mma_gemm();
  Emulated e({&k, 1});
  for (auto [m, n, depth, seed] : {std::tuple{64, 64, 32, 1}, {64, 64, 160, 2}, {70, 130, 72, 3}, {1, 3, 8, 4}}) {
    Case c(m, n, depth);
    e.set_seed(seed);
    run_mma(e, c);
    c.expect();
  }
  EXPECT_EQ(e.bank_conflicts(), 0);
  // Rows of 64 bytes: 4 of a tile's 8 rows are in the same banks.
  Kernel narrow = k;
  narrow.text.replace(narrow.text.find("kPitch = 40"), 11, "kPitch = 32");
  Emulated slow({&narrow, 1});
  Case c(64, 64, 32);
  run_mma(slow, c);
  c.expect();
  EXPECT_EQ(slow.bank_conflicts(), 4 * 2 * 4 * 4 * 3);  // warps, steps, ldmatrix, tiles
}

TEST(Gemm, TmaWgmma) {
  const Kernel k = wgmma_gemm();
  Emulated e({&k, 1});
  for (auto [m, n, depth, seed] : {std::tuple{128, 64, 64, 1}, {128, 64, 512, 2}, {200, 100, 136, 3}, {1, 3, 8, 4}}) {
    Case c(m, n, depth);
    e.set_seed(seed);
    run_wgmma(e, c);
    c.expect();
  }
}

// A kernel in which one piece of text is replaced, and a part of the emulation's error.
struct Fault {
  const char *from, *to, *says;
};

void expect_found(Kernel kernel, const Fault& f, void (*run)(Emulated&, Case&)) {
  const size_t at = kernel.text.find(f.from);
  ASSERT_NE(at, kernel.text.npos) << f.from;
  kernel.text.replace(at, std::strlen(f.from), f.to);
  Emulated e({&kernel, 1});
  for (uint64_t seed : {1, 2, 3}) {
    e.set_seed(seed);
    Case c(120, 60, 488);
    try {
      run(e, c);
      ADD_FAILURE() << "not found: " << f.from << " as " << f.to;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(f.says), std::string::npos)
          << f.from << " as " << f.to << ": " << error.what();
    }
  }
}

TEST(Gemm, FaultsOfTheMmaKernelAreFound) {
  for (const Fault& f : {
           Fault{"cp_async_wait<1>()", "", "no cp_async_wait"},
           Fault{"cp_async_wait<1>()", "cp_async_wait<2>()", "no cp_async_wait"},
           Fault{"__syncthreads();", "", "of shared memory, wh"},
           Fault{"(s + 2) % 3", "(s + 1) % 3", "still to fill"},
           Fault{"inside = first + row < rows &&", "inside =", "outside of the arguments' memory (byte"},
           Fault{"kPitch = 40", "kPitch = 36", "not a multiple of 16"},
           Fault{"i < 64 * 4;", "i < 60 * 4;", "where nothing was written"},
           Fault{"ldmatrix_x4(fa[i], a", "if (lane != 7) ldmatrix_x4(fa[i], a", "lanes of a warp part"},
           Fault{"a = shared_at<uint16_t>(s % 3 * 4 * kTile)", "a = shared_at<uint16_t>((s + 1) % 3 * 4 * kTile)",
                 "still to fill"},
       })
    expect_found(mma_gemm(), f, run_mma);
}

TEST(Gemm, FaultsOfTheWgmmaKernelAreFound) {
  for (const Fault& f : {
           Fault{"fence_mbarrier_init();", "", "without fence_mbarrier_init"},
           Fault{"mbarrier_wait(empty, s, (i / kStages + 1) % 2);", "", "beyond its 1 arrivals"},
           Fault{"mbarrier_wait(empty, s, (i / kStages + 1) % 2);", "mbarrier_wait(empty, s, i / kStages % 2);",
                 "deadlock: "},
           Fault{"mbarrier_wait(full, s, i / kStages % 2);", "", "no wait for its mbarrier"},
           Fault{"mbarrier_expect(full, s, kStage);", "mbarrier_expect(full, s, kStage + 16);", "16 bytes are to come"},
           Fault{"mbarrier_arrive(empty, s);", "", "deadlock: "},
           Fault{"mbarrier_init(empty, s, 256)", "mbarrier_init(empty, s, 128)", "beyond its 1"},
           Fault{"wgmma_wait<0>(sum);", "", "still reads"},
           Fault{"wgmma_fence(sum);", "", "wgmma_fence"},
           Fault{"wgmma_commit();", "wgmma_commit(); sum[3] = 1.0f;", "written to between"},
           Fault{"wgmma_desc(a, k, 0, 1024, 128)", "wgmma_desc(a, k + 8192 * group, 0, 1024, 128)", "bytes at byte"},
       })
    expect_found(wgmma_gemm(), f, run_wgmma);
}

TEST(Gemm, NvrtcCompiles) {
  const std::vector<Kernel> kernels = {mma_gemm(), wgmma_gemm()};
  WEFT_EXPECT_COMPILES(kernels);
}

}  // namespace
}  // namespace weft::cuda
