// Compares each launch of the models' training steps on a GPU with its ops on the CPU, on the same operands: equal
// bits, or for products and approximated functions within their bounds. This finds errors that losses over many steps
// do not show.
#include <gtest/gtest.h>

#include <bit>
#include <cstdio>

#include "compiler/exec/compile.h"
#include "framework/cuda/libraries/driver_api.h"
#include "models/hf/families.h"
#include "models/testing/verified_step.h"
#include "ops/composite/composite.h"
#include "ops/core/core.h"

namespace weft::testing {
namespace {

class Verify : public ::testing::TestWithParam<std::string> {};

TEST_P(Verify, EveryLaunchIsRight) {
  if (!cuda::availability().ok) GTEST_SKIP() << cuda::availability().why;
  const std::string& name = GetParam();
  const nn::ModelFamily& family = family_named(name);
  const nn::ConfigMap config{{"vocab", "256"}, {"context", "64"}, {"layers", "2"}, {"heads", "4"}, {"dim", "128"}};
  for (const std::optional<DType> dtype : {std::optional<DType>(), std::optional(kBFloat16), std::optional(kFloat16)})
    for (const char* numerics : {"fast", "eager"}) {
      const std::string what = str_cat(name, " ", dtype.value_or(kFloat32), " ", numerics);
      SCOPED_TRACE(what);
      const VerifiedStep r = verified_step(family, config, dtype, numerics, 4);
      EXPECT_LT(r.losses.back(), r.losses.front());
      std::printf("%s: %s\n", what.c_str(), r.verify.c_str());
    }
}

// Kernels of 16-bit values use the hardware's approximations: of all bf16 numbers, as f32 too, and of masked rows.
TEST(VerifyApproximations, KeepToTheirBounds) {
  if (!cuda::availability().ok) GTEST_SKIP() << cuda::availability().why;
  using Fn = std::function<Tensor(const Tensor&, const Tensor&)>;
  const std::pair<const char*, Fn> functions[] = {
      {"exp", [](const Tensor& x, const Tensor&) { return exp(x); }},
      {"log", [](const Tensor& x, const Tensor&) { return log(x); }},
      {"tanh", [](const Tensor& x, const Tensor&) { return tanh(x); }},
      {"sigmoid", [](const Tensor& x, const Tensor&) { return sigmoid(x); }},
      {"sqrt", [](const Tensor& x, const Tensor&) { return sqrt(x); }},
      {"rsqrt", [](const Tensor& x, const Tensor&) { return rsqrt(x); }},
      {"reciprocal", [](const Tensor& x, const Tensor&) { return reciprocal(x); }},
      {"division", [](const Tensor& x, const Tensor& y) { return x / y; }},
      {"softmax", [](const Tensor& x, const Tensor&) { return softmax(x, 1); }},
      {"softmax of rows with -inf",
       [](const Tensor& x, const Tensor& y) { return softmax(where(lt(y, 0.5), x, -INFINITY), 1); }},
      {"logsumexp", [](const Tensor& x, const Tensor& y) { return logsumexp(clamp(x, -100, 100) * y, {1}); }}};
  std::vector<float> x, y;
  for (uint32_t i = 0; i < 65536; ++i) {
    x.push_back(std::bit_cast<float>(i << 16));
    y.push_back(std::bit_cast<float>((i * 40503u & 0xffffu) << 16 | (i & 1 ? 0x1234u : 0u)));
  }
  const Tensor a = Tensor::from_vector(x, {64, 1024}).to(Device::cuda()),
               b = Tensor::from_vector(y, {64, 1024}).to(Device::cuda());
  for (const auto& [name, fn] : functions) {
    SCOPED_TRACE(name);
    auto step = compile(
        [f = fn](const Tensor& p, const Tensor& q) {
          const Tensor v = f(p, q);
          return std::vector<Tensor>{v, cast(v, kBFloat16), cast(v, kFloat16)};
        },
        {.verify = true});
    step(a, b);
    step(b, a);
  }
}

INSTANTIATE_TEST_SUITE_P(, Verify, ::testing::ValuesIn(family_names()));

}  // namespace
}  // namespace weft::testing
