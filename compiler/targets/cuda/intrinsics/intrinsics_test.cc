// Every intrinsic, in both forms: NVRTC compiles it for each architecture that has it, and so does the host's compiler.
#include "compiler/targets/cuda/intrinsics/intrinsics.h"

#include <gtest/gtest.h>

#include <vector>

#include "compiler/targets/cuda/nvrtc/testing/compile_check.h"
#include "compiler/targets/cuda/testing/emulate/emulate.h"
#include "framework/base/str_cat.h"

namespace weft::cuda {
namespace {

Kernel with(const char* symbol, std::string body, int sm, bool only_sm90a = false) {
  Kernel k;
  k.symbol = symbol;
  k.threads = 128;
  k.shared_bytes = 32768;
  k.least_sm = sm;
  k.only_sm90a = only_sm90a;
  k.text = str_cat(R"(struct P {
  float* f;
  double* d;
  int64* l;
  const uint16_t* h;
  uint4* v;
  TensorMap m;
};
extern "C" __global__ void __launch_bounds__(128, 1) )",
                   symbol, "(const __grid_constant__ P p) {\n  const int t = threadIdx.x;\n", body, "}\n");
  return k;
}

std::vector<Kernel> kernels() {
  std::string base = R"(
  float x = p.f[t], y = p.f[t + 128], s = 0.0f;
  s += w_abs(x) + w_copysign(x, y) + w_one(x) + w_sign(x) + w_relu(x) + w_max(x, y) + w_min(x, y) + w_rsqrt(x);
  s += w_fmod(x, y) + w_remainder(x, y) + w_floor_divide(x, y) + w_exp(x) + w_exp2(x) + w_expm1(x) + w_log(x);
  s += w_log2(x) + w_log1p(x) + w_tanh(x) + w_tanh_fast(x) + w_sigmoid(x) + w_erf(x) + w_sin(x) + w_cos(x);
  s += w_pow(x, y) + w_sqrt(x) + w_floor(x) + w_ceil(x) + w_trunc(x) + w_round(x) + w_fma(x, y, s);
  if (w_truth(x) & w_isnan(y) | w_isfinite(s)) s += 1.0f;
  s += from_bf16(to_bf16(x)) + from_f16(to_f16(y)) + round_bf16(x) + round_f16(y);
  uint32_t bits = pack_bf16(x, y) ^ pack_f16(y, x) ^ to_tf32(s);
  s += bf16_lo(bits) + bf16_hi(bits) + f16_lo(bits) + f16_hi(bits);
  s += exp2_fast(x) + log2_fast(x) + rcp_fast(x) + tanh_approx(x);
  double d = p.d[t];
  d += w_exp(d) + w_expm1(d) + w_log(d) + w_log1p(d) + w_sin(d) + w_cos(d) + w_tanh(d) + w_erf(d) + w_sqrt(d);
  d += w_floor(d) + w_ceil(d) + w_round(d) + w_sign(d) + w_relu(d) + w_max(d, 1.0) + w_min(d, 2.0) + w_rsqrt(d);
  d += w_sigmoid(d) + w_pow(d, 3.0) + w_remainder(d, 3.0) + w_floor_divide(d, 3.0) + to_f64(x);
  int64 n = p.l[t];
  n += w_shift_left(n, (int64)3) + w_shift_right_logical(n, (int64)2) + w_max(n, (int64)7) + to_i64(x) + to_i32(y);
  n += Max::identity<int64>() + (int64)Min::identity<float>() + Sum::f(3, 4) + Prod::f(t, 5);
  Reduce<Sum, float> r;
  for (i64 l = 0; l < n; ++l) r.take(l, get(((const bf16*)p.h)[l]) + get(((const f16*)p.h)[l]));
  s += r.result();
  unsigned random[4];
  w_philox(1u, 2u, (unsigned)n, 4u, 5u, 6u, random);
  Shared<float> f = shared_at<float>(0);
  f[t] = s + (float)random[0];
  f[t] += 1.0f;
  __syncwarp();
  __syncthreads();
  uint4 v = load_shared16(f, (t & 31) * 4);
  __syncthreads();
  store_shared16(f, (t & 31) * 4, v);
  const float4 g = load_global<float4>(p.v + t);
  store_global(p.v + 128 + t, make_uint4(v.x, v.y, bits, 1u));
  store_global(p.f + 2 * t, load_global<uint2>(p.v + t));
  s = shfl_xor(s, 1) + shfl_down(s, 2) + shfl_up(s, 3) + shfl(s, 4) + warp_sum(g.x) + warp_max(g.y) + warp_min(g.z);
  d = shfl_xor(d, 1) + warp_sum(d);
  n = shfl_xor(n, 1) + warp_max(n) + shfl_down((uint64_t)n, 1) + (int64)shfl((int32_t)n, 0) + shfl_up((uint32_t)n, 1);
  n += ballot(x > 0.0f) + any(x > 1.0f) + all(x > 2.0f) + swizzle128(t) + swizzle64(t) + swizzle32(t);
  barrier_sync(1, 64 + 64);
  if (t < 64) barrier_sync(2, 128);
  if (t >= 64) barrier_arrive(2, 128);
  put(((bf16*)p.v)[t + 4096], s);
  p.f[t] = s;
  p.d[t] = d;
  p.l[t] = n;
)";
  std::string sm80 = R"(
  Shared<uint16_t> s = shared_at<uint16_t>(1024);
  cp_async16(s, t * 8, p.h + t * 8, t < 100);
  cp_async_commit();
  cp_async_wait<1>();
  cp_async_wait<0>();
  __syncthreads();
  uint32_t a[4], b[2], c[4], e[2];
  ldmatrix_x4(a, s, (t & 31) * 8);
  ldmatrix_x4_trans(c, s, (t & 31) * 8);
  ldmatrix_x2(b, s, (t & 15) * 8);
  ldmatrix_x2_trans(e, s, (t & 15) * 8);
  float d[4] = {0.0f, 1.0f, 2.0f, 3.0f};
  mma_bf16(d, a, b);
  mma_f16(d, c, e);
  mma_tf32(d, a, e);
  for (int i = 0; i < 4; ++i) p.f[t * 4 + i] = d[i];
)";
  std::string sm90 = R"(
  Shared<uint64_t> b = shared_at<uint64_t>(0);
  Shared<uint16_t> s = shared_at<uint16_t>(1024);
  if (t == 0) {
    tma_prefetch(p.m);
    mbarrier_init(b, 0, 1);
    mbarrier_init(b, 1, 128);
    fence_mbarrier_init();
  }
  __syncthreads();
  mbarrier_arrive(b, 1);
  if (t == 0) {
    mbarrier_expect(b, 0, 4 * 64);
    tma_load_2d(s, 0, p.m, b, 0, 1, 2);
    tma_load_3d(s, 64, p.m, b, 0, 1, 2, 3);
    tma_load_4d(s, 128, p.m, b, 0, 1, 2, 3, 4);
    tma_load_5d(s, 192, p.m, b, 0, 1, 2, 3, 4, 5);
  }
  mbarrier_wait(b, 0, 0);
  mbarrier_wait(b, 1, 0);
  s[t] = (uint16_t)(s[t] + 1);
  fence_async_shared();
  __syncthreads();
  if (t == 0) {
    tma_store_2d(p.m, s, 0, 1, 2);
    tma_store_3d(p.m, s, 0, 1, 2, 3);
    tma_store_4d(p.m, s, 0, 1, 2, 3, 4);
    tma_store_5d(p.m, s, 0, 1, 2, 3, 4, 5);
    tma_store_commit();
    tma_store_wait<0>();
  }
)";
  std::vector<Kernel> all = {with("every_word", base, 80), with("tensor_intrinsics", sm80, 80),
                             with("async_intrinsics", sm90, 90)};
  all.push_back(with("register_intrinsics", R"(
  set_max_registers_down<232>();
  set_max_registers_up<240>();
  p.f[t] = 1.0f;
)",
                     90, true));
  // One function per width: together they would need more registers than exist.
  for (int n : wgmma_widths())
    all.push_back(
        with(str_cat("warpgroup_intrinsics", n).c_str(),
             str_cat(R"(
  Shared<uint16_t> s = shared_at<uint16_t>(1024);
  s[t] = 0;
  fence_async_shared();
  __syncthreads();
  const uint64_t da = wgmma_desc(s, 0, 1, 1024, 128), db = wgmma_desc(s, 0, 1, 1024, 128);
  const uint32_t a[4] = {1u, 2u, 3u, 4u};
  float d[)",
                     n / 2, "];\n  for (int i = 0; i < ", n / 2,
                     "; ++i) d[i] = 0.0f;\n  wgmma_fence(d);\n  wgmma_bf16<", n, ">(d, da, db, true);\n  wgmma_f16<", n,
                     ", 1, 1>(d, da, db, true);\n  wgmma_bf16<", n, ">(d, a, db, false);\n  wgmma_f16<", n,
                     ", 1>(d, a, db, true);\n  wgmma_commit();\n  wgmma_wait<0>(d);\n"
                     "  float sum = 0.0f;\n  for (int i = 0; i < ",
                     n / 2, "; ++i) sum += d[i];\n  p.f[t] = sum;\n"),
             90, true));
  return all;
}

TEST(Words, NvrtcTakesEveryWord) { WEFT_EXPECT_COMPILES(kernels()); }

TEST(Words, TheHostsCompilerTakesEveryWord) { Emulated emulated(kernels()); }

}  // namespace
}  // namespace weft::cuda
