// Each optimiser in a compiled step: the bits of the same step run eagerly, with the learning rate and the state as
// cells.
#include <gtest/gtest.h>

#include "framework/testing/compare.h"
#include "weft.h"

namespace weft {
namespace {

struct Run {
  std::vector<Tensor> values;
  std::map<std::string, Tensor> state;
};

template <class Opt>
Run run(bool compiled) {
  manual_seed(3);
  nn::Sequential net(nn::Linear(4, 6), nn::GELU(), nn::Linear(6, 3));
  Opt opt(net.parameters());
  const optim::EMA ema(net.parameters(), 0.5);
  optim::Scheduler schedule(opt, optim::ExponentialLR{.base = 0.0625, .gamma = 0.5});
  const auto fn = [&](Tensor x, Tensor y) {
    const Tensor loss = huber_loss(net(x), y);
    opt.minimize(loss);
    ema.update();
    return loss;
  };
  auto step = compile(fn, {.numerics = "eager"});
  Run out;
  for (int i = 0; i < 3; ++i) {
    const Tensor x = uniform({5, 4}, -1, 1), y = uniform({5, 3}, -1, 1);
    out.values.push_back(compiled ? step(x, y) : fn(x, y));
    schedule.step();
  }
  EXPECT_FALSE(compiled && step.report().empty());
  for (const auto& values : {opt.state_dict(), ema.state_dict(), net.state_dict()})
    for (const auto& [name, value] : values) out.state[name] = value;
  return out;
}

template <class Opt>
void expect_same(const char* name) {
  SCOPED_TRACE(name);
  const Run eager = run<Opt>(false), compiled = run<Opt>(true);
  for (size_t i = 0; i < eager.values.size(); ++i)
    EXPECT_TRUE(testing::same_bits(compiled.values[i], eager.values[i])) << i;
  ASSERT_EQ(eager.state.size(), compiled.state.size());
  for (const auto& [key, value] : eager.state) EXPECT_TRUE(testing::same_bits(compiled.state.at(key), value)) << key;
}

TEST(CompiledOptimizers, HaveTheBitsOfEager) {
  expect_same<optim::Adam>("Adam");
  expect_same<optim::NAdam>("NAdam");
  expect_same<optim::Adamax>("Adamax");
  expect_same<optim::RMSprop>("RMSprop");
  expect_same<optim::Adagrad>("Adagrad");
  expect_same<optim::Adafactor>("Adafactor");
}

TEST(CompiledOptimizers, LbfgsCallsACompiledFunction) {
  manual_seed(4);
  nn::Linear net(3, 1);
  const Tensor x = uniform({20, 3}, -1, 1), y = sum(x, 1, true) + 0.5;
  auto evaluate = compile([&](Tensor x, Tensor y) {
    const Tensor loss = mse_loss(net(x), y);
    const Gradients g = grad(loss, net.parameters());
    return std::pair<Tensor, std::vector<Tensor>>(loss, g);
  });
  optim::LBFGS opt(net.parameters(), {.max_iter = 30, .line_search_fn = "strong_wolfe"});
  opt.step([&] { return evaluate(x, y); });
  for (float w : net.weight.value().to_vector<float>()) EXPECT_NEAR(w, 1, 1e-3);
  EXPECT_NEAR(net.bias.value().item<float>(), 0.5, 1e-3);
}

}  // namespace
}  // namespace weft
