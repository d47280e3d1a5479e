#include "compiler/targets/cuda/testing/emulate/gemm_kernels.h"

namespace weft::cuda {

Kernel mma_gemm() {
  Kernel k;
  k.symbol = "mma_gemm";
  k.threads = 128;
  k.shared_bytes = 3 * 2 * 64 * 80;
  k.max_registers = 128;
  k.text = R"(struct GemmParams {
  const uint16_t *a, *b;
  float* c;
  int m, n, k;
};
const int kPitch = 40;  // elements per row of a tile: 32, and 8 that prevent bank conflicts of ldmatrix
const int kTile = 64 * kPitch;

// Copies 64 rows of 32 elements, starting at row `first` and column `k`; zeros outside.
__device__ void fetch(Shared<uint16_t> tile, const uint16_t* from, int first, int rows, int k, int width) {
  for (int i = threadIdx.x; i < 64 * 4; i += 128) {
    const int row = i / 4, col = i % 4 * 8;
    const bool inside = first + row < rows && k + col < width;
    cp_async16(tile, row * kPitch + col, from + (inside ? (int64)(first + row) * width + k + col : 0), inside);
  }
}

extern "C" __global__ void __launch_bounds__(128) mma_gemm(const __grid_constant__ GemmParams p) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int m0 = blockIdx.y * 64, n0 = blockIdx.x * 64, wm = warp / 2 * 32, wn = warp % 2 * 32;
  const int steps = (p.k + 31) / 32;
  float sum[2][4][4];
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 4; ++j)
      for (int r = 0; r < 4; ++r) sum[i][j][r] = 0.0f;
  for (int s = 0; s < 2; ++s) {
    if (s < steps) {
      fetch(shared_at<uint16_t>(s * 4 * kTile), p.a, m0, p.m, s * 32, p.k);
      fetch(shared_at<uint16_t>(s * 4 * kTile + 2 * kTile), p.b, n0, p.n, s * 32, p.k);
    }
    cp_async_commit();
  }
  for (int s = 0; s < steps; ++s) {
    cp_async_wait<1>();
    __syncthreads();
    const int ahead = (s + 2) % 3;
    if (s + 2 < steps) {
      fetch(shared_at<uint16_t>(ahead * 4 * kTile), p.a, m0, p.m, (s + 2) * 32, p.k);
      fetch(shared_at<uint16_t>(ahead * 4 * kTile + 2 * kTile), p.b, n0, p.n, (s + 2) * 32, p.k);
    }
    cp_async_commit();
    const Shared<uint16_t> a = shared_at<uint16_t>(s % 3 * 4 * kTile);
    const Shared<uint16_t> b = shared_at<uint16_t>(s % 3 * 4 * kTile + 2 * kTile);
    for (int k = 0; k < 32; k += 16) {
      uint32_t fa[2][4], fb[2][4];
      for (int i = 0; i < 2; ++i) ldmatrix_x4(fa[i], a, (wm + 16 * i + lane % 16) * kPitch + k + lane / 16 * 8);
      for (int j = 0; j < 2; ++j)
        ldmatrix_x4(fb[j], b, (wn + 16 * j + lane / 16 * 8 + lane % 8) * kPitch + k + lane / 8 % 2 * 8);
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 4; ++j) {
          const uint32_t two[2] = {fb[j / 2][j % 2 * 2], fb[j / 2][j % 2 * 2 + 1]};
          mma_bf16(sum[i][j], fa[i], two);
        }
    }
  }
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 4; ++j)
      for (int r = 0; r < 4; ++r) {
        const int m = m0 + wm + 16 * i + lane / 4 + r / 2 * 8, n = n0 + wn + 8 * j + lane % 4 * 2 + r % 2;
        if (m < p.m && n < p.n) store_global(p.c + (int64)m * p.n + n, sum[i][j][r]);
      }
}
)";
  return k;
}

Kernel wgmma_gemm() {
  Kernel k;
  k.symbol = "wgmma_gemm";
  k.threads = 384;
  k.shared_bytes = 1024 + 3 * 24576;
  k.least_sm = 90;
  k.only_sm90a = true;
  k.max_registers = 168;
  k.text = R"(struct alignas(64) TmaGemmParams {
  TensorMap a, b;
  float* c;
  int m, n, k;
};
const int kStages = 3, kStage = 24576;  // bytes: A 128 rows of 128, B 64 rows

extern "C" __global__ void __launch_bounds__(384, 1) wgmma_gemm(const __grid_constant__ TmaGemmParams p) {
  const Shared<uint64_t> full = shared_at<uint64_t>(0), empty = shared_at<uint64_t>(64);
  const int m0 = blockIdx.y * 128, n0 = blockIdx.x * 64, steps = (p.k + 63) / 64;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      mbarrier_init(full, s, 1);
      mbarrier_init(empty, s, 256);
    }
    fence_mbarrier_init();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    set_max_registers_down<24>();
    if (threadIdx.x != 0) return;
    for (int i = 0; i < steps; ++i) {
      const int s = i % kStages;
      mbarrier_wait(empty, s, (i / kStages + 1) % 2);
      mbarrier_expect(full, s, kStage);
      tma_load_2d(shared_at<uint16_t>(1024 + s * kStage), 0, p.a, full, s, i * 64, m0);
      tma_load_2d(shared_at<uint16_t>(1024 + s * kStage + 16384), 0, p.b, full, s, i * 64, n0);
    }
    return;
  }
  set_max_registers_up<240>();
  const int group = threadIdx.x / 128 - 1, t = threadIdx.x % 128;
  float sum[32];
  for (int i = 0; i < 32; ++i) sum[i] = 0.0f;
  for (int i = 0; i < steps; ++i) {
    const int s = i % kStages;
    mbarrier_wait(full, s, i / kStages % 2);
    const Shared<uint16_t> a = shared_at<uint16_t>(1024 + s * kStage + group * 8192);
    const Shared<uint16_t> b = shared_at<uint16_t>(1024 + s * kStage + 16384);
    wgmma_fence(sum);
    for (int k = 0; k < 64; k += 16)
      wgmma_bf16<64>(sum, wgmma_desc(a, k, 0, 1024, 128), wgmma_desc(b, k, 0, 1024, 128), true);
    wgmma_commit();
    wgmma_wait<0>(sum);
    mbarrier_arrive(empty, s);
  }
  for (int i = 0; i < 32; ++i) {
    const int m = m0 + group * 64 + t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8, n = n0 + i / 4 * 8 + t % 4 * 2 + i % 2;
    if (m < p.m && n < p.n) store_global(p.c + (int64)m * p.n + n, sum[i]);
  }
}
)";
  return k;
}

}  // namespace weft::cuda
