// The emulation finds what it is there to find, and the words mean what the PTX ISA says.
#include "compiler/cuda/emulate/emulate.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "framework/base/cat.h"
#include "framework/base/error.h"

namespace weft::cuda {
namespace {

Kernel kernel(const std::string& body, int threads = 64, int shared = 1024, const std::string& params = "float* p;") {
  Kernel k;
  k.symbol = "k";
  k.threads = threads;
  k.shared_bytes = shared;
  k.text = cat("struct P { ", params, " };\nextern \"C\" __global__ void __launch_bounds__(", threads,
               ") k(const __grid_constant__ P p) {\n", body, "\n}\n");
  return k;
}

template <class P>
std::string run(const Kernel& k, const P& params, Grid grid = {}, uint64_t seed = 1) {
  Emulated e({&k, 1}, {.seed = seed});
  try {
    e.launch("k", grid, params);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

struct FloatParams {
  float* p;
};

TEST(Emulate, ThreadsAndWarps) {
  std::vector<float> out(128, -1);
  const Kernel k = kernel(R"(
  Shared<float> t = shared_at<float>(0);
  t[threadIdx.x] = (float)threadIdx.x;
  __syncthreads();
  const float other = t[63 - threadIdx.x];
  p.p[blockIdx.x * 64 + threadIdx.x] = warp_sum(other) + (any(threadIdx.x == 40) ? 1000.0f : 0.0f);)");
  EXPECT_EQ(run(k, FloatParams{out.data()}, {.x = 2}), "");
  for (int i = 0; i < 128; ++i) EXPECT_EQ(out[i], (i % 64 < 32 ? 32 * 47.5f : 32 * 15.5f + 1000)) << i;
}

TEST(Emulate, ReadsOfNothing) {
  std::vector<float> out(64);
  const std::string wrong = run(kernel(R"(  Shared<float> t = shared_at<float>(0);
  t[threadIdx.x] = 1.0f;
  p.p[threadIdx.x] = t[63 - threadIdx.x];)"),
                                FloatParams{out.data()});
  EXPECT_NE(wrong.find("where nothing was written"), wrong.npos) << wrong;
}

}  // namespace
}  // namespace weft::cuda
