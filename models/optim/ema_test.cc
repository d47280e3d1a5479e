#include "models/optim/ema.h"

#include <gtest/gtest.h>

#include "framework/testing/compare.h"
#include "ops/core/core.h"

namespace weft::optim {
namespace {

using weft::testing::error_of;

TEST(Ema, IsARunningMean) {
  Parameter p(Tensor::from_vector({8, -4}, {2}), "p"), q(full({1}, 2, {.dtype = kBFloat16}), "q");
  const EMA ema({p, q}, 0.75);
  const auto mean = [&](size_t i) { return ema.values()[i].to_vector<float>(); };
  ema.update();  // the first one copies
  EXPECT_EQ(mean(0), (std::vector<float>{8, -4}));
  p.set(Tensor::from_vector({0, 4}, {2}));
  q.set(full({1}, 3, {.dtype = kBFloat16}));
  ema.update();
  EXPECT_EQ(mean(0), (std::vector<float>{6, -2}));
  EXPECT_EQ(mean(1), (std::vector<float>{2.25f}));
  EXPECT_EQ(ema.values()[1].dtype(), kFloat32);
  ema.swap();
  EXPECT_EQ(p.value().to_vector<float>(), (std::vector<float>{6, -2}));
  EXPECT_EQ(mean(0), (std::vector<float>{0, 4}));
  ema.swap();
  EXPECT_EQ(p.value().to_vector<float>(), (std::vector<float>{0, 4}));
  ema.copy_to_parameters();
  EXPECT_EQ(p.value().to_vector<float>(), (std::vector<float>{6, -2}));
  EXPECT_EQ(q.value().to_vector<float>(), (std::vector<float>{2.25f}));
}

TEST(Ema, IsSavedAndLazy) {
  Parameter p(
      TensorType{.dtype = kFloat32, .device = {}, .shape = {1 << 20, 1 << 20}},
      [] {
        return zeros({1 << 20, 1 << 20});
      },
      "w");
  const EMA huge({p});
  EXPECT_EQ(huge.named_cells()[1].first, "w.ema");
  EXPECT_FALSE(huge.named_cells()[1].second.materialised());
  Parameter a(ones({2}), "a");
  const EMA first({a}, 0.5), second({a}, 0.5);
  first.update();
  second.load_state_dict(first.state_dict());
  a.set(full({2}, 3));
  first.update(), second.update();
  EXPECT_EQ(second.values()[0].to_vector<float>(), (std::vector<float>{2, 2}));
  EXPECT_EQ(first.values()[0].to_vector<float>(), second.values()[0].to_vector<float>());
  EXPECT_EQ(error_of([&] {
              second.load_state_dict({{"b", ones({1})}});
            }),
            "load_state_dict: EMA state: 'ema.updates' is missing, 'a.ema' is missing, 'b' is unexpected");
  auto state = first.state_dict();
  state["ema.updates"] = Tensor::from_vector<int64_t>({-1}, {});
  EXPECT_EQ(error_of([&] { second.load_state_dict(state); }),
            "load_state_dict: EMA state: 'ema.updates' is -1, need a finite number >= 0");
}

TEST(Ema, RefusesWhatDoesNotFit) {
  Parameter a(ones({2}), "a");
  EXPECT_EQ(error_of([&] { EMA({a}, 0.5).swap(); }), "EMA::swap: there is no mean yet; need update() first");
  EXPECT_EQ(error_of([&] { EMA({a, a}); }), "EMA: parameter 'a' is given twice; need each once");
  EXPECT_EQ(error_of([&] { EMA({a}, 1.5); }), "EMA: decay is 1.5; need a number from 0 to 1");
  EXPECT_EQ(error_of([] { EMA(std::vector<Parameter>{}); }), "EMA: got no parameters; need one or more");
}

}  // namespace
}  // namespace weft::optim
