// Compares each launch of the models' training steps on a GPU with its ops on the CPU, on the same operands: equal
// bits, or for products within the bounds of their sums. This finds errors that losses over many steps do not show.
#include <gtest/gtest.h>

#include <cstdio>

#include "framework/cuda/driver_api.h"
#include "models/gpt/config.h"
#include "models/llama/config.h"
#include "models/moe/config.h"
#include "models/testing/verified_step.h"

namespace weft::testing {
namespace {

class Verify : public ::testing::TestWithParam<const char*> {};

TEST_P(Verify, EveryLaunchIsRight) {
  if (!cuda::availability().ok) GTEST_SKIP() << cuda::availability().why;
  const std::string name = GetParam();
  const nn::ModelFamily& family = name == "gpt" ? gpt::family() : name == "llama" ? llama::family() : moe::family();
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

INSTANTIATE_TEST_SUITE_P(, Verify, ::testing::Values("gpt", "llama", "moe"));

}  // namespace
}  // namespace weft::testing
