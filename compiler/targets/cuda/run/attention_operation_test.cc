// flex_attention and its gradients on the emulated GPU (sm_90a, with TMA and WGMMA where possible), against the CPU.
#include <gtest/gtest.h>

#include <cmath>

#include "compiler/targets/cuda/testing/gpu/emulated_gpu.h"
#include "framework/autodiff/grad.h"
#include "ops/attention/flex_attention.h"
#include "ops/core/core.h"

namespace weft::cuda {
namespace {

Tensor values(const Shape& shape, int seed) {
  std::vector<float> v(shape.numel());
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>((i * 37 + seed * 13) % 64) / 32 - 1;
  return Tensor::from_vector<float>(v, shape);
}

/// The output, and the gradients of q, k and v for an output gradient of ones.
std::vector<Tensor> results(DType type, Device device, int64_t n) {
  std::vector<Tensor> in;
  for (int i = 0; i < 3; ++i) in.push_back(values({1, 2, n, 32}, i).to(type).to(device).requires_grad());
  const Tensor out = flex_attention(in[0], in[1], in[2], {.mask_mod = attention::causal()});
  std::vector<Tensor> all = grad(sum(out.to(kFloat32)), in);
  all.insert(all.begin(), out.detach());
  for (Tensor& t : all) t = t.to(Device::cpu()).to(kFloat32);
  return all;
}

TEST(AttentionOperation, EqualsTheCpu) {
  testing::ScopedEmulatedGpu gpu;
  for (auto [type, n] : {std::pair{kFloat32, int64_t{40}}, {kBFloat16, 130}}) {
    const std::vector<Tensor> got = results(type, Device::cuda(), n), want = results(type, Device::cpu(), n);
    // Bound: the roundings of a sum of at most n terms, each of magnitude 32 / sqrt(32) or less.
    const double unit = type == kFloat32 ? 0x1p-24 : 0x1p-9;
    const double bound =
        type == kFloat32 ? 2 * 200 * unit * static_cast<double>(n) : 2 * 8 * unit * std::sqrt(32.0) * 4;
    for (size_t i = 0; i < got.size(); ++i) {
      const std::vector<float> g = got[i].contiguous().to_vector<float>(), w = want[i].contiguous().to_vector<float>();
      for (size_t k = 0; k < g.size(); ++k)
        ASSERT_NEAR(g[k], w[k], bound) << to_string_view(type) << " result " << i << "[" << k << "]";
    }
  }
  bool hopper = false;
  for (const std::string& name : gpu.driver().kernels_run()) hopper |= name.find("hopper") != std::string::npos;
  EXPECT_TRUE(hopper);
}

}  // namespace
}  // namespace weft::cuda
