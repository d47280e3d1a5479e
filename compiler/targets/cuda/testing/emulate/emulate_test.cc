// The emulation finds every kind of error, reports it in one sentence, and reports nothing for correct kernels.
#include "compiler/targets/cuda/testing/emulate/emulate.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/str_cat.h"

namespace weft::cuda {
namespace {

struct Params {
  float* f;
  const uint16_t* h;
};

// The body of a kernel; its first line is line 7.
Kernel kernel(const std::string& body, int threads = 64, int shared = 4096) {
  Kernel k;
  k.symbol = "k";
  k.threads = threads;
  k.shared_bytes = shared;
  k.text = str_cat("struct P {\n  float* f;\n  const uint16_t* h;\n};\nextern \"C\" __global__ void __launch_bounds__(",
                   threads, ")\nk(const __grid_constant__ P p) { const int t = threadIdx.x;\n", body, "\n}\n");
  return k;
}

struct Outcome {
  std::string error;
  std::vector<float> f = std::vector<float>(256, -1);
  std::vector<uint16_t> h = std::vector<uint16_t>(2048);
};

Outcome run(const Kernel& k, uint64_t seed = 1, bool ranges = false) {
  Outcome r;
  // Room behind f, so that a write beyond its end does not hit h.
  r.f.reserve(2 * r.f.size());
  for (size_t i = 0; i < r.h.size(); ++i) r.h[i] = static_cast<uint16_t>(i);
  Emulated e({&k, 1}, {.seed = seed});
  if (ranges) {
    e.allow("f", r.f.data(), r.f.size() * 4);
    e.allow("h", r.h.data(), r.h.size() * 2, false);
  }
  try {
    e.launch("k", {}, Params{r.f.data(), r.h.data()});
  } catch (const Error& error) {
    r.error = error.what();
  }
  return r;
}

void expect_right(const std::string& body, int threads = 64) {
  for (uint64_t seed : {1, 2, 3}) EXPECT_EQ(run(kernel(body, threads), seed).error, "") << body;
}

// In any order of threads the error is found, and its text holds all of `parts`.
void expect_wrong(const std::string& body, std::initializer_list<const char*> parts, int threads = 64,
                  bool ranges = false) {
  for (uint64_t seed : {1, 2, 3, 4}) {
    const std::string error = run(kernel(body, threads), seed, ranges).error;
    for (const char* part : parts) EXPECT_NE(error.find(part), error.npos) << body << "\n-> " << error;
  }
}

// ---- the meaning of intrinsics ----

TEST(Emulate, WarpWords) {
  const Outcome r = run(kernel(R"(
  Shared<float> s = shared_at<float>(0);
  s[t] = (float)t;
  __syncthreads();
  const float other = s[63 - t];
  float v = warp_sum(other) + 1000.0f * shfl_down((float)t, 3) + 100.0f * shfl_up((float)t, 31);
  v += (any(t == 40) ? 0.25f : 0.0f) + (all(t != 40) ? 0.5f : 0.0f) + (float)(ballot(t % 32 < 4) == 15u) * 0.125f;
  p.f[t] = v + 1e6f * shfl(other, 5) - warp_max(other) + warp_min(other);
  p.f[64 + t] = (float)(shfl_xor((double)t, 9) + (double)shfl((int64)t << 40, 3) / 1099511627776.0);)"));
  EXPECT_EQ(r.error, "");
  for (int t = 0; t < 64; ++t) {
    const int l = t % 32, w = t / 32, o0 = 63 - 32 * w;  // other threads: o0, o0 - 1, ...
    const float down = static_cast<float>(l + 3 < 32 ? t + 3 : t), up = static_cast<float>(l == 31 ? t - 31 : t);
    float v = (o0 * 32 - 496.0f) + 1000 * down + 100 * up;
    v += (w == 1 ? 0.25f : 0) + (w == 0 ? 0.5f : 0) + 0.125f;
    EXPECT_EQ(r.f[t], v + 1e6f * (o0 - 5) - o0 + (o0 - 31)) << t;
    EXPECT_EQ(r.f[64 + t], (t ^ 9) + 32 * w + 3) << t;
  }
}

TEST(Emulate, LdmatrixOfTilesAndTransposedTiles) {
  const Outcome r = run(kernel(R"(
  Shared<uint16_t> s = shared_at<uint16_t>(0);
  for (int i = 0; i < 8; ++i) s[t * 8 + i] = (uint16_t)(t * 8 + i);
  __syncwarp();
  uint32_t a[4], b[4], c[2], d[2];
  ldmatrix_x4(a, s, t * 8);
  ldmatrix_x4_trans(b, s, t * 8);
  ldmatrix_x2(c, s, t * 8 % 128);
  ldmatrix_x2_trans(d, s, t * 8 % 128);
  int wrong = 0;
  for (int m = 0; m < 4; ++m)
    for (int h = 0; h < 2; ++h) {
      // Element (row, column) of tile m is 64 m + 8 row + column.
      const int plain = 64 * m + 8 * (t / 4) + t % 4 * 2 + h, trans = 64 * m + 8 * (t % 4 * 2 + h) + t / 4;
      wrong += (a[m] >> 16 * h & 0xffff) != plain;
      wrong += (b[m] >> 16 * h & 0xffff) != trans;
      if (m < 2) wrong += ((c[m] >> 16 * h & 0xffff) != plain) + ((d[m] >> 16 * h & 0xffff) != trans);
    }
  p.f[t] = (float)wrong;)",
                               32));
  EXPECT_EQ(r.error, "");
  for (int t = 0; t < 32; ++t) EXPECT_EQ(r.f[t], 0) << t;
}

// Fragments as in the PTX ISA's figures of m16n8k16 and m16n8k8: row and column of each element by lane.
TEST(Emulate, MmaFragments) {
  const Outcome r = run(kernel(R"(
  const int g = t >> 2, q = t & 3;
  int wrong = 0;
  for (int type = 0; type < 3; ++type) {
    float d[4] = {1.0f, 2.0f, 3.0f, 4.0f};
    uint32_t a[4], b[2];
    // A(i, k) = i + 2 k, B(k, j) = k - j: small integers, exact in every type.
    for (int i = 0; i < 4; ++i) {
      const int row = i == 0 || i == 2 ? g : g + 8;
      if (type == 2) {
        a[i] = to_tf32((float)(row + 2 * (q + (i >= 2 ? 4 : 0))));
      } else {
        const int col = q * 2 + (i >= 2 ? 8 : 0);
        const float lo = (float)(row + 2 * col), hi = (float)(row + 2 * (col + 1));
        a[i] = type == 0 ? pack_bf16(lo, hi) : pack_f16(lo, hi);
      }
    }
    for (int i = 0; i < 2; ++i) {
      if (type == 2) {
        b[i] = to_tf32((float)(q + 4 * i - g));
      } else {
        const int row = q * 2 + 8 * i;
        b[i] = type == 0 ? pack_bf16((float)(row - g), (float)(row + 1 - g))
                         : pack_f16((float)(row - g), (float)(row + 1 - g));
      }
    }
    if (type == 0) mma_bf16(d, a, b);
    if (type == 1) mma_f16(d, a, b);
    if (type == 2) mma_tf32(d, a, b);
    for (int i = 0; i < 4; ++i) {
      const int row = i < 2 ? g : g + 8, col = q * 2 + (i & 1);
      int sum = i + 1;
      for (int k = 0; k < (type == 2 ? 8 : 16); ++k) sum += (row + 2 * k) * (k - col);
      wrong += d[i] != (float)sum;
    }
  }
  p.f[t] = (float)wrong;)",
                               32));
  EXPECT_EQ(r.error, "");
  for (int t = 0; t < 32; ++t) EXPECT_EQ(r.f[t], 0) << t;
}

TEST(Emulate, Conversions) {
  const Outcome r = run(kernel(R"(
  const float x = t % 2 ? 1.00390625f : 3.0e-41f, nan = __builtin_nanf("");
  p.f[t] = t == 0 ? bf16_lo(pack_bf16(1.00390625f, x)) : t == 1 ? bf16_hi(pack_bf16(2.0f, 1.01171875f))
         : t == 2 ? f16_hi(pack_f16(1.0f, 65520.0f)) : t == 3 ? (float)pack_bf16(nan, 1.0f)
         : t == 4 ? exp2_fast(-140.0f) : t == 5 ? rcp_fast(4.0f) : t == 6 ? w_as_f(to_tf32(1.00048828125f))
         : t == 7 ? (float)swizzle128(128 * 3 + 16) : 0.0f;)"));
  EXPECT_EQ(r.error, "");
  EXPECT_EQ(r.f[0], 1.0f);
  EXPECT_EQ(r.f[1], 1.015625f);
  EXPECT_EQ(r.f[2], std::numeric_limits<float>::infinity());
  EXPECT_EQ(r.f[3], static_cast<float>(0x3f807fff));
  EXPECT_EQ(r.f[4], 0.0f);
  EXPECT_EQ(r.f[5], 0.25f);
  EXPECT_EQ(r.f[6], 1.0009765625f);
  EXPECT_EQ(r.f[7], 128 * 3 + 32);
}

// ---- races ----

TEST(Emulate, BarriersOrder) {
  expect_right("Shared<float> s = shared_at<float>(0); s[t] = 1.0f; __syncthreads(); p.f[t] = s[63 - t];");
  expect_right("Shared<float> s = shared_at<float>(0); s[t] = 1.0f; __syncwarp(); p.f[t] = s[t ^ 31];");
  expect_right("Shared<float> s = shared_at<float>(0); s[t] = 1.0f; barrier_sync(1, 64); p.f[t] = s[63 - t];");
  // One warp passes data to the other.
  expect_right(R"(Shared<float> s = shared_at<float>(0);
  if (t < 32) { s[t] = 1.0f; barrier_arrive(3, 64); } else { barrier_sync(3, 64); p.f[t] = s[t - 32]; })");
  // Through a third warp: warp 0 to 1, 1 to 2.
  expect_right(R"(Shared<float> s = shared_at<float>(0);
  if (t < 32) { s[t] = 1.0f; barrier_sync(1, 64); }
  else if (t < 64) { barrier_sync(1, 64); barrier_sync(2, 64); }
  else { barrier_sync(2, 64); p.f[t] = s[t - 64]; })",
               96);
  // Neighbouring elements of 16 and 8 bits.
  expect_right("Shared<uint16_t> s = shared_at<uint16_t>(0); s[t] = 1; p.f[t] = (float)s[t]; s[t] = 2;");
  expect_right("Shared<uint8_t> s = shared_at<uint8_t>(0); s[t] = 1; p.f[t] = (float)s[t]; s[t] = 2;");
}

TEST(Emulate, RacesAreFound) {
  // A write, then a read.
  expect_wrong(R"(Shared<float> s = shared_at<float>(0);
  s[t] = 0.0f; __syncthreads();
  s[t] = 1.0f;
  p.f[t] = s[63 - t]; __syncthreads();)",
               {"kernel k, block (0, 0, 0), thread ", "4 bytes at byte ", "with no barrier between"});
  // A read, then a write.
  expect_wrong(R"(Shared<float> s = shared_at<float>(0);
  s[t] = 0.0f; __syncthreads();
  p.f[t] = s[63 - t];
  s[t] = 1.0f;)",
               {"with no barrier between"});
  // Two writes.
  expect_wrong("Shared<float> s = shared_at<float>(0); s[t % 32] = 1.0f;", {"writes 4 bytes", "wrote (line 7)"});
  // A warp's barrier does not order another warp.
  expect_wrong(
      "Shared<float> s = shared_at<float>(0); s[t] = 1.0f; __syncthreads(); s[t] = 2.0f; __syncwarp(); "
      "p.f[t] = s[63 - t];",
      {"with no barrier between"});
  // A shuffle does not order memory.
  expect_wrong(
      "Shared<float> s = shared_at<float>(0); s[t] = 1.0f; const float x = shfl(1.0f, 0); p.f[t] = x + s[t ^ 1];",
      {"of shared memory, wh"});
  // One lane passes the data on, but nothing waited for the others.
  expect_wrong(R"(Shared<float> s = shared_at<float>(64); Shared<uint64_t> b = shared_at<uint64_t>(0);
  if (t == 0) { mbarrier_init(b, 0, 1); fence_mbarrier_init(); } s[t] = 0.0f;
  __syncthreads();
  if (t < 32) { s[t] = 1.0f; if (t == 0) mbarrier_arrive(b, 0); }
  else { mbarrier_wait(b, 0, 0); p.f[t] = s[t - 32]; })",
               {"with no barrier between"});
  // Many readers, one of which writes.
  expect_wrong(
      "Shared<float> s = shared_at<float>(0); if (t == 0) s[0] = 1.0f; __syncthreads(); const float x = s[0]; "
      "if (t == 5) s[0] = x;",
      {"with no barrier between"});
}

TEST(Emulate, ReadsOfNothingAndOutside) {
  expect_wrong("Shared<float> s = shared_at<float>(0); if (t) s[t] = 1.0f; __syncthreads(); p.f[t] = s[0];",
               {"line 7: reads 4 bytes at byte 0 of shared memory, where nothing was written"});
  expect_wrong("Shared<float> s = shared_at<float>(0); s[t + 1000] = 1.0f;", {"of which there are 4096"});
  expect_wrong("Shared<float> s = shared_at<float>(4 * t); store_shared16(s, 0, make_uint4(1, 2, 3, 4));",
               {"which is not aligned"}, 64);
}

TEST(Emulate, GlobalMemory) {
  expect_wrong("p.f[t] = load_global<float4>(p.f + 4 * t + 1).x;", {"reads 16 bytes", "not a multiple of 16"});
  expect_wrong("store_global(p.f + 200 + t, 1.0f);",
               {"writes 4 bytes", "outside of the arguments'", "byte 10", "of f, which has 1024", "behind parameter f"},
               64, true);
  expect_wrong("store_global((void*)(p.h + 2 * t), 1u);", {"writes to h, which is only read"}, 64, true);
  expect_wrong("cp_async16(shared_at<float>(0), 4 * t, p.h + 8 * t + 2000, true);", {"line 7: reads 16 bytes"}, 64,
               true);
  expect_right(
      "cp_async16(shared_at<float>(0), 4 * t, p.h + 8 * t, t < 32); cp_async_commit(); cp_async_wait<0>();"
      "p.f[t] = shared_at<float>(0)[4 * t];");
}

// The error of a launch of two blocks.
std::string of_two_blocks(const std::string& body, uint64_t seed) {
  const Kernel k = kernel(body);
  Emulated e({&k, 1}, {.seed = seed});
  std::vector<float> f(256);
  std::vector<uint16_t> h(256);
  try {
    e.launch("k", {.x = 2}, Params{f.data(), h.data()});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Emulate, RacesInGlobalMemory) {
  expect_wrong("p.f[t / 2] = 1.0f;", {"writes 4 bytes of global memory", "behind parameter f", ", which thread ",
                                      "wrote with no barrier between"});
  expect_wrong("p.f[t] = 1.0f;\np.f[t + 64] = p.f[t ^ 1];", {"4 bytes of global memory", "with no barrier between"});
  expect_right("p.f[t] = 1.0f;\n__syncwarp();\np.f[t + 64] = p.f[t ^ 1];");
  expect_wrong("p.f[t] = 1.0f;\n__syncwarp();\np.f[t + 64] = p.f[t ^ 32];",
               {"4 bytes of global memory", "with no barrier between"});
  expect_right("p.f[t] = 1.0f;\n__syncthreads();\np.f[t + 64] = p.f[t ^ 32];");
  expect_wrong("const float x = p.f[t ^ 32];\n__syncwarp();\np.f[t] = x;",
               {"4 bytes of global memory", "with no barrier between"});
  expect_right("const float x = p.f[t ^ 32];\n__syncthreads();\np.f[t] = x;");
  // Neighbours within a word, and their part of a wider access.
  expect_right("uint16_t* h = (uint16_t*)p.f; h[t] = 1; ((char*)(h + 64))[t] = 2;");
  expect_wrong(
      "uint16_t* h = (uint16_t*)p.f; h[t] = 1; if (t == 40) store_global((float4*)p.f, make_float4(1, 1, 1, 1));",
      {"bytes of global memory", "no barrier between"});
  expect_wrong("cp_async16(shared_at<float>(0), 4 * t, p.f + 4 * (t % 4), true); p.f[t % 16] = 1.0f;",
               {"bytes of global memory", " with no barrier between"});
  // A thread's own arrays and constants of the text are not global memory.
  expect_right(
      "static const float table[4] = {1, 2, 3, 4}; float own[8]; for (int i = 0; i < 8; ++i) own[(i + t) % 8] = "
      "table[i % 4]; p.f[t] = own[t % 8];");
}

TEST(Emulate, RacesBetweenBlocks) {
  for (uint64_t seed : {1, 2, 3}) {
    const std::string both = of_two_blocks("p.f[t] = 1.0f;", seed);
    EXPECT_NE(both.find("kernel k, block (1, 0, 0), thread "), both.npos) << both;
    EXPECT_NE(both.find(", which block (0, 0, 0), thread "), both.npos) << both;
    EXPECT_NE(both.find(" wrote in the same launch"), both.npos) << both;
    const std::string read = of_two_blocks("if (blockIdx.x == 0) p.f[t] = 1.0f; else p.f[t + 64] = p.f[t];", seed);
    EXPECT_NE(read.find("reads 4 bytes"), read.npos) << read;
    const std::string write = of_two_blocks("if (blockIdx.x == 1) p.f[t] = 1.0f; else p.f[t + 64] = p.f[t];", seed);
    EXPECT_NE(write.find(" read in the same launch"), write.npos) << write;
    EXPECT_EQ(of_two_blocks("p.f[64 * blockIdx.x + t] = p.f[128 + t];", seed), "");
  }
}

TEST(Emulate, PlainAccessesAreChecked) {
  expect_wrong("p.f[t + 256] = 1.0f;", {"outside of the arguments' memory", "of f, which has 1024"}, 64, true);
  expect_wrong("const_cast<uint16_t*>(p.h)[t] = 1;", {"writes to h, which is only read"}, 64, true);
  expect_wrong("typedef float two __attribute__((vector_size(8))); *(two*)(p.f + 2 * t + 1) = two{1, 2};",
               {"needs a multiple of 8"});
  expect_right("p.f[t] = (float)p.h[t];");
}

TEST(Emulate, FaultsAreErrors) {
  expect_wrong("float* p0 = nullptr;\n__syncwarp();\nif (t == 5) p0[3] = 1.0f;",
               {"kernel k, block (0, 0, 0), thread 5: touches address 12, where no memory is"});
  expect_wrong("volatile float big[60000]; for (int i = t; i < 60000; ++i) big[i] = 1.0f; p.f[t] = big[t + 1];",
               {"its stack overflows"});
  expect_right("p.f[t] = 1.0f;");
}

TEST(Emulate, MisalignedAccessesAreErrors) {
  expect_wrong("if (t < 4)\n  p.f[t] = ((const float4*)(p.f + 4 + t))->x;",
               {"thread 1", "line 8", "touches memory that needs a multiple of 16 at address ", "which is 4 past one"});
  expect_wrong("*(uint2*)(p.f + 2 * t + 1) = make_uint2(1, 2);", {"touches memory that needs a multiple of 8"});
  expect_right("if (t % 2 == 0) *(uint2*)(p.f + t) = make_uint2(1, 2);");
}

TEST(Emulate, CopiesThatDidNotLand) {
  const std::string start = "Shared<uint16_t> s = shared_at<uint16_t>(0); cp_async16(s, 8 * t, p.h + 8 * t, true);\n";
  expect_wrong(start + "p.f[t] = (float)s[8 * t];",
               {"line 8", "which cp_async16 (line 7) is still to fill: no cp_async_wait"});
  expect_wrong(start + "cp_async_commit(); cp_async_wait<1>(); p.f[t] = (float)s[8 * t];", {"still to fill"});
  expect_wrong(start + "cp_async_wait<0>(); p.f[t] = (float)s[8 * t];", {"still to fill"});  // in no group
  expect_wrong(start + "s[8 * t] = 1;", {"writes 2 bytes", "still to fill"});
  expect_wrong(start + "cp_async_commit(); cp_async_wait<0>(); p.f[t] = (float)s[8 * (t ^ 1)];",
               {"of shared memory, wh"});
  expect_right(start + "cp_async_commit(); cp_async_wait<0>(); __syncthreads(); p.f[t] = (float)s[8 * (t ^ 1)];");
}

// ---- divergence and deadlock ----

TEST(Emulate, DivergenceIsFound) {
  expect_wrong("if (t != 3)\n  p.f[t] = shfl_xor(1.0f, 1);\nelse\n  p.f[t] = shfl_down(1.0f, 1);",
               {"lanes of a warp part: this one is in shfl_", "(line "});
  expect_wrong("if (t != 3) p.f[t] = shfl_xor(1.0f, 1);",
               {"deadlock: ", "31 threads (from ", ") wait for the other lanes in shfl_xor (line 7)", "have ended"});
}

TEST(Emulate, BarriersCountWarps) {
  expect_wrong("if (t % 2) barrier_sync(1, 32);", {"lanes of warp 0 part at barrier 1: some came and some did not"});
  expect_wrong("if (t % 2) barrier_arrive(1, 64); else barrier_sync(1, 64);\nif (t % 2) barrier_sync(2, 32);",
               {" part at barrier 2"});
}

TEST(Emulate, DeadlocksAreFound) {
  expect_wrong("if (t < 32) __syncthreads();",
               {"deadlock: 32 threads (from ", "have ended", "wait at __syncthreads (line 7), where 32 of 64 arrived"});
  expect_wrong("if (t < 32) barrier_sync(1, 64); else barrier_sync(2, 64);",
               {"wait at barrier 1 (line 7), where 32 of 64 arrived", "wait at barrier 2"});
  expect_wrong("barrier_sync(1, t < 32 ? 64 : 96);", {"barrier 1 is for "}, 96);
  expect_wrong(R"(Shared<uint64_t> b = shared_at<uint64_t>(0);
  if (t == 0) mbarrier_init(b, 0, 2);
  __syncthreads();
  if (t == 0) mbarrier_expect(b, 0, 64);
  mbarrier_wait(b, 0, 0);)",
               {"64 threads (from 0) wait for parity 0 of the mbarrier at byte 0 (line 11), in phase 0 of which 1 of 2 "
                "arrived and 64 bytes are to come"});
  expect_wrong("mbarrier_wait(shared_at<uint64_t>(0), 0, 0);", {"where nothing was written"});
}

TEST(Emulate, MbarrierPhases) {
  expect_right(R"(Shared<uint64_t> b = shared_at<uint64_t>(0); Shared<float> s = shared_at<float>(64);
  if (t == 0) { mbarrier_init(b, 0, 32); mbarrier_init(b, 1, 32); fence_mbarrier_init(); }
  __syncthreads();
  for (int i = 0; i < 5; ++i) {
    if (t < 32) {
      mbarrier_wait(b, 1, (i + 1) % 2);
      s[t] = (float)i;
      mbarrier_arrive(b, 0);
    } else {
      mbarrier_wait(b, 0, i % 2);
      p.f[t] = s[63 - t];
      mbarrier_arrive(b, 1);
    }
  })");
}

TEST(Emulate, ManyBlocksInEveryOrder) {
  const Kernel k =
      kernel("if (t == 5) p.f[blockIdx.x + 3 * blockIdx.y + 6 * blockIdx.z] = (float)(blockDim.x + gridDim.x);");
  Emulated e({&k, 1});
  std::vector<float> out(12);
  e.launch("k", {.x = 3, .y = 2, .z = 2}, Params{out.data(), nullptr});
  for (float x : out) EXPECT_EQ(x, 67);
  EXPECT_GT(e.steps(), 0);
}

TEST(Emulate, BadLaunches) {
  const Kernel k = kernel("");
  Emulated e({&k, 1});
  EXPECT_THROW(e.launch("other", {}, Params{}), Error);
  EXPECT_THROW(e.launch("k", {.x = 1, .y = 70000}, Params{}), Error);
  const Kernel odd = kernel("", 33), bad = kernel("not C++");
  EXPECT_THROW(Emulated({&odd, 1}), Error);
  EXPECT_THROW(Emulated({&bad, 1}), Error);
}

}  // namespace
}  // namespace weft::cuda
