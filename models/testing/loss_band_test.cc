// The band of losses on the CPU includes other orders of sums, f64 and eager execution, and excludes wrong runs.
#include "models/testing/loss_band.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <map>

#include "framework/base/switches.h"
#include "models/gpt/config.h"
#include "models/llama/config.h"
#include "models/moe/config.h"

namespace weft::testing {
namespace {

constexpr int kSteps = 50;

TrainHow small() {
  return {.size = {{"vocab", "64"}, {"context", "16"}, {"layers", "2"}, {"heads", "2"}, {"dim", "32"}},
          .batch = 8,
          .adamw = {.lr = 1e-3}};
}

TEST(StudentQuantile, IsThatOfTables) {
  EXPECT_NEAR(student_quantile(2, 0.05), 4.302653, 1e-5);
  EXPECT_NEAR(student_quantile(8, 0.05), 2.306004, 1e-5);
  EXPECT_NEAR(student_quantile(8, 0.001), 5.041305, 1e-5);
  EXPECT_NEAR(student_quantile(16, 0.001), 4.014996, 1e-5);
}

class Band : public ::testing::TestWithParam<TrainCase> {
 protected:
  void SetUp() override {
    set_switch("WEFT_CXX", "none");  // interpreted: quicker for so little data
    static std::map<std::string, LossBand> made;
    LossBand& band = made[GetParam().name];
    if (band.center.empty()) band = loss_band(GetParam(), small(), {.steps = kSteps});
    band_ = band;
  }
  double worst(const char* what, const std::vector<double>& losses) {
    const double w = band_.worst(losses);
    std::printf("%s, %s: %.3g\n", GetParam().name, what, w);
    return w;
  }
  LossBand band_;
};

TEST_P(Band, HoldsSoundRuns) {
  TrainCase c = GetParam();
  TrainHow how = small();
  EXPECT_LE(worst("itself", band_losses(c, how, kSteps)), 1);
  how.compile.verify_numerics = true;  // products of our own, with sums in another order
  EXPECT_LE(worst("other sums", band_losses(c, how, kSteps)), 1);
  how.compile = {.enabled = false};
  EXPECT_LE(worst("eager", band_losses(c, how, kSteps)), 1);
  how.compile = {};
  for (uint64_t seed : {100, 101})
    EXPECT_LE(worst("another seed", band_losses(c, how, kSteps, band_noise(c, how), seed)), 1);
  c.dtype = {};
  how.weights = kFloat64;
  EXPECT_LE(worst("f64", band_losses(c, how, kSteps)), 1);
}

TEST_P(Band, ExcludesWrongRuns) {
  const TrainCase& c = GetParam();
  TrainHow how = small();
  how.adamw.lr *= c.dtype ? 1.05 : 1.01;  // 16-bit roundings hide less
  EXPECT_GT(worst("learning rate", band_losses(c, how, kSteps)), 1);
  how = small();
  // Changes the gradients of one vector in f32 (a bias or a norm's scale), of all vectors in 16 bits.
  how.tamper = [&](const std::vector<Parameter>& p, std::vector<Tensor>& g) {
    bool first = true;
    for (size_t i = 0; i < p.size(); ++i) {
      if (c.dtype ? p[i].shape().size() > 1 && p[i].name().find("out.weight") == std::string::npos
                  : p[i].shape().size() != 1 || !std::exchange(first, false))
        continue;
      g[i] = zeros(p[i].shape());
    }
  };
  EXPECT_GT(worst("gradients dropped", band_losses(c, how, kSteps)), 1);
  if (c.dtype) return;

  TrainCase rounded = c;
  rounded.dtype = kBFloat16;
  EXPECT_GT(worst("bf16 instead", band_losses(rounded, small(), kSteps)), 1);
  // TF32 keeps 11 bits of both operands, as f16 does; here of the weights alone.
  std::vector<Tensor> off;
  AroundStep tf32;
  tf32.before = [&](int, const std::vector<Parameter>& parameters) {
    off.clear();
    for (const Parameter& p : parameters) {
      const Tensor value = p.value().detach(), eleven = value.to(kFloat16).to(kFloat32);
      off.push_back(value - eleven);
      p.set(eleven);
    }
  };
  tf32.after = [&](int, const std::vector<Parameter>& parameters) {
    for (size_t i = 0; i < off.size(); ++i) parameters[i].set(parameters[i].value().detach() + off[i]);
  };
  EXPECT_GT(worst("TF32 instead", band_losses(c, small(), kSteps, tf32)), 1);
}

INSTANTIATE_TEST_SUITE_P(, Band,
                         ::testing::Values(TrainCase{"gpt", gpt::family()}, TrainCase{"llama", llama::family()},
                                           TrainCase{"moe", moe::family(), {{"kv_heads", "1"}}},
                                           TrainCase{"gpt_bf16", gpt::family(), {}, kBFloat16},
                                           TrainCase{"llama_bf16", llama::family(), {}, kBFloat16},
                                           TrainCase{"moe_bf16", moe::family(), {{"kv_heads", "1"}}, kBFloat16}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace weft::testing
