// TMA and WGMMA against plain products: operands in every layout of descriptors, A in registers, f16.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "compiler/targets/cuda/testing/emulate/emulate.h"
#include "compiler/targets/cuda/testing/emulate/tensor_map.h"
#include "framework/base/error.h"
#include "framework/base/str_cat.h"
#include "framework/cuda/testing/fake_driver.h"

namespace weft::cuda {
namespace {

struct alignas(64) Params {
  char a[128], b[128];
  float* c;
};

// Small integers: exact in bf16 and f16.
int value(int row, int col) { return (row * 7 + col * 5 + row * col) % 13 - 6; }
uint16_t encoded(int v, bool bf16) {
  if (bf16) return static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(v)) >> 16);
  return std::bit_cast<uint16_t>(static_cast<_Float16>(v));
}

// A is 64 x 32 and B 32 x n (k in the middle): K-major is [64][32] and [n][32] in memory, transposed [32][64], [32][n].
struct WgmmaCase {
  int swizzle;
  bool trans_a, trans_b, bf16;
  int n;
  std::string to_string() const {
    return str_cat("swizzle ", swizzle, trans_a ? ", A transposed" : "", trans_b ? ", B transposed" : "",
                   bf16 ? ", bf16" : ", f16", ", n ", n);
  }
};

// Fills A at byte 1024 and B at byte 32768 by TMA in boxes as wide as the swizzle, then multiplies.
Kernel product(const WgmmaCase& l) {
  const int width = l.swizzle / 2;  // elements of a box's row
  // Boxes are consecutive along the contiguous dim; each has all rows of the other dim.
  auto load = [&](const char* name, int at, bool trans, int extent) {
    const int rows = trans ? 32 : extent, columns = trans ? extent : 32;
    std::string out;
    for (int c = 0; c < columns; c += width)
      out += str_cat("    tma_load_2d(shared_at<uint16_t>(", at + c / width * rows * l.swizzle, "), 0, p.", name,
                     ", b, 0, ", c, ", 0);\n");
    return out;
  };
  // The offset of step k (0 or 16): K-major moves along the box's row, or to the next box; transposed moves down 16
  // rows.
  auto desc = [&](const char* tile, int at, bool trans, int extent) {
    const int rows = trans ? 32 : extent;
    const std::string start =
        trans ? str_cat("k * ", l.swizzle) : str_cat("k / ", width, " * ", rows * l.swizzle, " + k % ", width, " * 2");
    return str_cat("wgmma_desc(shared_at<uint16_t>(", at, " + ", start, "), 0, ", trans ? rows * l.swizzle : 0, ", ",
                   8 * l.swizzle, ", ", l.swizzle, ")");
  };
  Kernel k;
  k.symbol = "product";
  k.threads = 128;
  k.shared_bytes = 65536;
  k.least_sm = 90;
  k.only_sm90a = true;
  k.text = str_cat(
      R"(struct alignas(64) P {
  TensorMap a, b;
  float* c;
};
extern "C" __global__ void __launch_bounds__(128) product(const __grid_constant__ P p) {
  const int t = threadIdx.x;
  const Shared<uint64_t> b = shared_at<uint64_t>(0);
  if (t == 0) {
    mbarrier_init(b, 0, 1);
    fence_mbarrier_init();
    mbarrier_expect(b, 0, )",
      64 * 32 * 2 + l.n * 32 * 2, ");\n", load("a", 1024, l.trans_a, 64), load("b", 32768, l.trans_b, l.n),
      "  }\n  __syncthreads();\n  mbarrier_wait(b, 0, 0);\n  float d[", l.n / 2, "];\n  for (int i = 0; i < ", l.n / 2,
      "; ++i) d[i] = 1.0f;\n  wgmma_fence(d);\n  for (int k = 0; k < 32; k += 16)\n    wgmma_", l.bf16 ? "bf16" : "f16",
      "<", l.n, ", ", int{l.trans_a}, ", ", int{l.trans_b}, ">(d, ", desc("a", 1024, l.trans_a, 64), ", ",
      desc("b", 32768, l.trans_b, l.n), ", k > 0);\n  wgmma_commit();\n  wgmma_wait<0>(d);\n  for (int i = 0; i < ",
      l.n / 2, "; ++i)\n    p.c[(t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8) * ", l.n,
      " + i / 4 * 8 + t % 4 * 2 + i % 2] = d[i];\n}\n");
  return k;
}

void encode(void* map, const std::vector<uint16_t>& values, uint64_t rows, uint64_t columns, int swizzle) {
  const uint64_t extents[] = {columns, rows}, strides[] = {columns * 2};
  const uint32_t box[] = {static_cast<uint32_t>(swizzle / 2), static_cast<uint32_t>(rows)};
  encode_tensor_map(map, 2, values.data(), extents, strides, box, swizzle);
}

TEST(Wgmma, EveryLayout) {
  for (const WgmmaCase& l : {WgmmaCase{128, false, false, true, 64},
                             {64, false, false, true, 32},
                             {32, false, false, true, 128},
                             {64, true, false, true, 64},
                             {128, true, true, true, 128},
                             {64, false, true, true, 96},
                             {32, true, true, false, 32},
                             {64, false, false, false, 8},
                             {128, true, true, false, 256}}) {
    // A box is as wide as the swizzle, and no wider than the tensor.
    const bool fits_a = l.swizzle / 2 <= (l.trans_a ? 64 : 32), fits_b = l.swizzle / 2 <= (l.trans_b ? l.n : 32);
    const WgmmaCase use = fits_a && fits_b ? l : WgmmaCase{64, l.trans_a, l.trans_b, l.bf16, l.n};
    const Kernel k = product(use);
    Emulated e({&k, 1});
    std::vector<uint16_t> a(64 * 32), b(32 * l.n);
    for (int i = 0; i < 64; ++i)
      for (int j = 0; j < 32; ++j) a[l.trans_a ? j * 64 + i : i * 32 + j] = encoded(value(i, j), l.bf16);
    for (int i = 0; i < 32; ++i)
      for (int j = 0; j < l.n; ++j) b[l.trans_b ? i * l.n + j : j * 32 + i] = encoded(value(j + 3, i), l.bf16);
    std::vector<float> c(64 * l.n);
    Params p{};
    encode(p.a, a, l.trans_a ? 32 : 64, l.trans_a ? 64 : 32, use.swizzle);
    encode(p.b, b, l.trans_b ? 32 : l.n, l.trans_b ? l.n : 32, use.swizzle);
    p.c = c.data();
    e.launch("product", {}, p);
    int wrong = 0;
    for (int i = 0; i < 64; ++i)
      for (int j = 0; j < l.n; ++j) {
        int sum = 0;
        for (int x = 0; x < 32; ++x) sum += value(i, x) * value(j + 3, x);
        wrong += c[i * l.n + j] != sum;
      }
    EXPECT_EQ(wrong, 0) << use.to_string() << "\n" << k.text;
  }
}

// A in registers, in mma's layout; B without a swizzle, written by threads.
TEST(Wgmma, RegistersAndNoSwizzle) {
  Kernel k;
  k.symbol = "product";
  k.threads = 128;
  k.shared_bytes = 8192;
  k.only_sm90a = true;
  const std::string body = R"(struct alignas(64) P {
  TensorMap a, b;
  float* c;
};
extern "C" __global__ void __launch_bounds__(128) product(const __grid_constant__ P p) {
  const int t = threadIdx.x;
  const Shared<uint16_t> s = shared_at<uint16_t>(1024);
  // B(k, n) = k - n for n < 16, in atoms of 8 (n) x 8 (k): atoms 128 bytes apart along k and 512 along n.
  for (int i = t; i < 256; i += 128) {
    const int k = i % 16, n = i / 16;
    s[n / 8 * 256 + k / 8 * 64 + n % 8 * 8 + k % 8] = to_bf16((float)(k - n));
  }
  fence_async_shared();
  __syncthreads();
  uint32_t a[4];
  for (int i = 0; i < 4; ++i) {
    const int row = t / 32 * 16 + t % 32 / 4 + i % 2 * 8, col = t % 4 * 2 + i / 2 * 8;
    a[i] = pack_bf16((float)(row % 7 + col), (float)(row % 7 + col + 1));
  }
  float d[8];
  for (int i = 0; i < 8; ++i) d[i] = 5.0f;
  wgmma_fence(d);
  wgmma_bf16<16>(d, a, wgmma_desc(s, 0, 128, 512, 0), true);
  wgmma_commit();
  wgmma_wait<0>(d);
  for (int i = 0; i < 8; ++i)
    store_global(p.c + (t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8) * 16 + i / 4 * 8 + t % 4 * 2 + i % 2, d[i] * 2.0f);
}
)";
  k.text = body;
  std::vector<float> c(64 * 16);
  Params p{};
  p.c = c.data();
  Emulated({&k, 1}).launch("product", {}, p);
  for (int i = 0; i < 64; ++i)
    for (int j = 0; j < 16; ++j) {
      int sum = 5;
      for (int x = 0; x < 16; ++x) sum += (i % 7 + x) * (x - j);
      EXPECT_EQ(c[i * 16 + j], 2 * sum) << i << ", " << j;
    }
  const std::pair<const char*, const char*> faults[] = {
      {"fence_async_shared();", "without a fence_async_shared"},
      {"wgmma_wait<0>(d);", "computed from accumulators of a wgmma that no wgmma_wait waited for"},
      {"wgmma_commit();", "computed from accumulators of a wgmma that no wgmma_wait waited for"},
      {"wgmma_fence(d);", "without wgmma_fence before it"}};
  for (const auto& [erased, says] : faults) {
    k.text = body;
    k.text.erase(k.text.find(erased), std::string(erased).size());
    Emulated faulty({&k, 1});
    try {
      faulty.launch("product", {}, p);
      ADD_FAILURE() << erased;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    }
  }
}

// A warpgroup waits for registers until another one releases them, or forever.
TEST(Registers, ABlockHasNoMoreThanItsOwn) {
  auto run = [](int down, int up, const char* who = "threadIdx.x < 128") {
    Kernel k;
    k.symbol = "split";
    k.threads = 384;
    k.only_sm90a = true;
    k.text = str_cat(
        "struct P {\n  int* y;\n};\nextern \"C\" __global__ void __launch_bounds__(384, 1) split(const "
        "__grid_constant__ P p) {\n  if (",
        who, ") {\n    set_max_registers_down<", down, ">();\n  } else {\n    set_max_registers_up<", up,
        ">();\n  }\n}\n");
    int* none = nullptr;
    try {
      Emulated({&k, 1}).launch("split", {}, none);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(run(24, 240), "");
  EXPECT_EQ(run(40, 232), "");
  EXPECT_NE(run(40, 240).find("set 66560 registers; a block of 384 threads has 64512"), std::string::npos);
  EXPECT_NE(run(176, 232).find("from 168 registers to 176"), std::string::npos);
  EXPECT_NE(run(24, 160).find("from 168 registers to 160"), std::string::npos);
  EXPECT_NE(run(24, 240, "threadIdx.x < 32").find("threads of a warpgroup part"), std::string::npos);
}

TEST(Tma, BoxesBeyondTheTensorAndStores) {
  Kernel k;
  k.symbol = "move";
  k.threads = 32;
  k.shared_bytes = 4096;
  k.least_sm = 90;
  k.text = R"(struct alignas(64) P {
  TensorMap a, b;
  float* c;
};
extern "C" __global__ void __launch_bounds__(32) move(const __grid_constant__ P p) {
  const Shared<uint64_t> b = shared_at<uint64_t>(0);
  const Shared<float> s = shared_at<float>(1024);
  if (threadIdx.x == 0) {
    mbarrier_init(b, 0, 1);
    fence_mbarrier_init();
    mbarrier_expect(b, 0, 3 * 2 * 4 * 4);
    tma_load_3d(s, 0, p.a, b, 0, 2, -1, 1);
  }
  __syncwarp();
  mbarrier_wait(b, 0, 0);
  if (threadIdx.x < 24) s[threadIdx.x] += 1000.0f;
  fence_async_shared();
  __syncwarp();
  if (threadIdx.x == 0) {
    tma_store_3d(p.b, s, 0, 2, -1, 1);
    tma_store_commit();
    tma_store_wait<0>();
    s[0] = 0.0f;
  }
}
)";
  // Extents 4, 3, 3, innermost first; boxes 4 x 2 x 3 from (2, -1, 1).
  std::vector<float> in(36), out(36, -1);
  for (int i = 0; i < 36; ++i) in[i] = static_cast<float>(i);
  const uint64_t extents[] = {4, 3, 3}, strides[] = {16, 48};
  const uint32_t box[] = {4, 2, 3};
  Params p{};
  encode_tensor_map(p.a, 4, in.data(), extents, strides, box, 0);
  encode_tensor_map(p.b, 4, out.data(), extents, strides, box, 0);
  Emulated e({&k, 1});
  e.launch("move", {}, p);
  for (int z = 0; z < 3; ++z)
    for (int y = 0; y < 3; ++y)
      for (int x = 0; x < 4; ++x) {
        const int i = (z * 3 + y) * 4 + x;
        EXPECT_EQ(out[i], x >= 2 && y == 0 && z >= 1 ? i + 1000 : -1) << x << ", " << y << ", " << z;
      }
  const size_t at = k.text.find("tma_store_wait<0>();");
  k.text.erase(at, 20);
  Emulated early({&k, 1});
  EXPECT_THROW(early.launch("move", {}, p), Error);
  const uint64_t odd[] = {8, 48};
  EXPECT_THROW(encode_tensor_map(p.a, 4, in.data(), extents, odd, box, 0), Error);
  EXPECT_THROW(encode_tensor_map(p.a, 4, in.data(), extents, strides, std::vector<uint32_t>{64, 2, 3}, 128), Error);
}

TEST(Tma, TheFakeDriversMapsAreTheSame) {
  alignas(64) char mine[128];
  alignas(64) CUtensorMap drivers;
  alignas(64) static float data[4096];
  const testing::FakeDriver fake;
  const uint64_t extents[] = {33, 5, 2}, strides[] = {256, 2048};
  const uint32_t box[] = {16, 4, 1}, ones[] = {1, 1, 1};
  for (int swizzle = 0; swizzle < 4; ++swizzle) {
    const uint32_t width[] = {swizzle == 1 ? 8u : box[0], box[1], box[2]};
    encode_tensor_map(mine, 4, data, extents, strides, width, swizzle ? 16 << swizzle : 0);
    ASSERT_EQ(fake.table().cuTensorMapEncodeTiled(&drivers, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 3, data, extents, strides,
                                                  width, ones, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                                  static_cast<CUtensorMapSwizzle>(swizzle),
                                                  CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
              CUDA_SUCCESS);
    EXPECT_EQ(std::memcmp(mine, &drivers, 128), 0) << swizzle;
  }
}

}  // namespace
}  // namespace weft::cuda
