// Training and generation on a GPU. Losses stay in the band that models/testing/loss_band.h derives for runs that
// differ from the CPU's only by roundings.
#include <gtest/gtest.h>

#include <cstdio>

#include "framework/cuda/libraries/driver_api.h"
#include "models/hf/families.h"
#include "models/testing/loss_band.h"
#include "tools/gpu/extents.h"

namespace weft::testing {
namespace {

TrainCase model(const std::string& name, std::optional<DType> dtype) {
  const nn::ModelFamily& family = family_named(name);
  return {family.name.c_str(), family, name == "moe" ? nn::ConfigMap{{"kv_heads", "2"}} : nn::ConfigMap{}, dtype};
}

TrainHow how(Device device, bool small) {
  TrainHow h{.size = {{"vocab", "256"}, {"context", "32"}, {"layers", "2"}, {"heads", "4"}, {"dim", "128"}},
             .batch = 8,
             .device = device,
             .adamw = {.lr = 1e-3}};
  if (small || shrunk()) {
    h.size = {{"vocab", "32"}, {"context", "8"}, {"layers", "1"}, {"heads", "2"}, {"dim", "32"}};
    h.batch = 2;
  }
  return h;
}

class Train : public ::testing::TestWithParam<std::string> {
 protected:
  void compare(std::optional<DType> dtype) {
    if (!cuda::availability().ok) GTEST_SKIP() << cuda::availability().why;
    const TrainCase c = model(GetParam(), dtype);
    const int steps = at_most(50, 6);
    const LossBand band = loss_band(c, how(Device::cpu(), false), {.steps = steps});
    TrainSteps training(c, how(Device::cuda(), false));
    std::vector<double> losses;
    for (int i = 0; i < steps; ++i) {
      losses.push_back(training.step(band_text(c, how(Device::cpu(), false), i)).loss.item<double>());
      std::printf("%s step %d: band %.6f +- %.2e, gpu %+.2e of it\n", c.name, i, band.center[i], band.half_width[i],
                  (losses.back() - band.center[i]) / band.half_width[i]);
    }
    std::printf("%s: at most %.3f of the band\n", c.name, band.worst(losses));
    EXPECT_LE(band.worst(losses), 1);
    EXPECT_LT(losses.back(), losses.front());
    EXPECT_EQ(training.stats().measured_peak_bytes, training.stats().planned_peak_bytes);
  }
};

TEST_P(Train, FiftyStepsInF32AsOnTheCpu) { compare({}); }
TEST_P(Train, FiftyStepsInBf16AsOnTheCpu) { compare(kBFloat16); }

// The band is narrow enough on this machine to detect a learning rate that is off by 1 %, and TF32.
TEST_P(Train, WrongRunsAreSeen) {
  if (!cuda::availability().ok) GTEST_SKIP() << cuda::availability().why;
  const TrainCase c = model(GetParam(), {});
  const int steps = at_most(50, 6);
  const LossBand band = loss_band(c, how(Device::cpu(), false), {.steps = steps});
  auto worst = [&](const TrainHow& h) {
    TrainSteps training(c, h);
    std::vector<double> losses;
    for (int i = 0; i < steps; ++i)
      losses.push_back(training.step(band_text(c, how(Device::cpu(), false), i)).loss.item<double>());
    return band.worst(losses);
  };
  TrainHow off = how(Device::cuda(), false);
  off.adamw.lr *= 1.01;
  EXPECT_GT(worst(off), 1);
  off = how(Device::cuda(), false);
  off.compile.tf32 = true;
  const double tf32 = worst(off);
  std::printf("%s: TF32 at %.3g bands\n", c.name, tf32);
  if (!shrunk()) {
    EXPECT_GT(tf32, 1);  // a few steps with sums of 32 terms would not show it
  }
}

class SmallTrain : public ::testing::TestWithParam<std::string> {};

TEST_P(SmallTrain, ReplayedIsQueued) {
  if (!cuda::availability().ok) GTEST_SKIP() << cuda::availability().why;
  std::vector<std::vector<float>> cells[2];
  for (const bool graph : {false, true}) {
    TrainHow h = how(Device::cuda(), true);
    h.compile.cuda_graph = graph;
    TrainSteps training(model(GetParam(), kBFloat16), h);
    for (int i = 0; i < 4; ++i) training.step();
    cells[graph] = training.cells();
  }
  EXPECT_EQ(cells[0], cells[1]);
}

TEST_P(SmallTrain, F16SkipsStepsThatOverflow) {
  if (!cuda::availability().ok) GTEST_SKIP() << cuda::availability().why;
  TrainHow h = how(Device::cuda(), true);
  h.loss_scale = 0x1p28;
  TrainSteps training(model(GetParam(), kFloat16), h);
  const auto before = training.cells();
  EXPECT_FALSE(training.step().ok.item<bool>());
  EXPECT_EQ(training.cells(), before);
  for (int i = 0; i < 28 && !training.step().ok.item<bool>(); ++i) continue;
  EXPECT_LT(training.loss_scale(), 0x1p28);
  EXPECT_NE(training.cells(), before);
}

// Decoding token by token with the cache gives the logits of the whole text, up to f32 roundings.
TEST_P(SmallTrain, DecodesAsTheWholeText) {
  if (!cuda::availability().ok) GTEST_SKIP() << cuda::availability().why;
  TrainSteps made(model(GetParam(), {}), how(Device::cuda(), true));
  const nn::LanguageModel& m = made.model();
  m.eval();
  NoGrad guard;
  const Tensor text = made.text().slice(1, 0, 8).to(Device::cuda()), want = m.logits(text).to(Device::cpu());
  const nn::KvCache cache = m.make_cache(2, 8);
  auto step = compile([&](Tensor tokens) {
    NoGrad inside;
    return m.logits(tokens, cache);
  });
  std::vector<Tensor> parts{step(text.slice(1, 0, 5)).to(Device::cpu())};
  for (int64_t t = 5; t < 8; ++t) parts.push_back(step(text.slice(1, t, t + 1)).to(Device::cpu()));
  const double off = amax(abs(cat(parts, 1) - want)).item<double>(), most = amax(abs(want)).item<double>();
  EXPECT_LE(off, 512 * 0x1p-24 * most);  // as in models/testing/decode_test.cc: chains of a few hundred roundings
}

INSTANTIATE_TEST_SUITE_P(, Train, ::testing::ValuesIn(family_names()));
INSTANTIATE_TEST_SUITE_P(, SmallTrain, ::testing::ValuesIn(family_names()));

}  // namespace
}  // namespace weft::testing
