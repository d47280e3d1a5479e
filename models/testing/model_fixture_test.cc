// One training step of every model equals PyTorch's, eagerly and compiled.
#include <gtest/gtest.h>

#include <cstdio>
#include <set>

#include "models/hf/families.h"
#include "models/testing/fixture.h"
#include "weft.h"

namespace weft::testing {
namespace {

constexpr double kTolerance = 1e-5;  // for f32 models, in the measure of fixture.h

struct LossAndGrads {
  Tensor loss;
  std::vector<Tensor> grads;
};

void expect_pytorchs_step(const std::string& name, bool compiled) {
  Fixture f = load_fixture(name);
  const std::vector<Parameter> parameters = f.model->parameters();
  optim::AdamW opt(parameters, {.lr = f.lr, .betas = {f.beta1, f.beta2}, .eps = f.eps, .weight_decay = f.weight_decay});
  auto step = compile(
      [&](Tensor tokens, Tensor targets) {
        LossAndGrads s;
        s.loss = f.model->loss(tokens, targets).loss;
        s.grads = grad(s.loss, parameters);
        opt.step(s.grads);
        return s;
      },
      {.enabled = compiled});
  const double most = amax(abs(f.logits)).item<double>();
  EXPECT_LE(amax(abs(f.model->logits(f.tokens) - f.logits)).item<double>(), kTolerance * most);

  const LossAndGrads s = step(f.tokens, f.targets);
  EXPECT_NEAR(s.loss.item<double>(), f.loss.item<double>(), kTolerance * f.loss.item<double>());
  std::map<std::string, Tensor> grads, weights;
  for (size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_GT(amax(abs(s.grads[i])).item<double>(), 0) << parameters[i].name();
    grads[parameters[i].name()] = s.grads[i];
    weights[parameters[i].name()] = parameters[i].value();
  }
  const Closeness g = gradient_closeness(grads, f.grads), w = weight_closeness(weights, f.stepped, f.lr);
  std::printf("%s: gradients within %.1e (%s), weights within %.1e (%s)\n", name.c_str(), g.worst, g.name.c_str(),
              w.worst, w.name.c_str());
  EXPECT_LE(g.worst, kTolerance) << g.name;
  EXPECT_LE(w.worst, kTolerance) << w.name;
}

class ModelFixture : public ::testing::TestWithParam<std::string> {};
TEST_P(ModelFixture, StepEqualsPyTorchEagerly) { expect_pytorchs_step(GetParam(), false); }
TEST_P(ModelFixture, StepEqualsPyTorchCompiled) { expect_pytorchs_step(GetParam(), true); }
INSTANTIATE_TEST_SUITE_P(All, ModelFixture, ::testing::ValuesIn(fixture_names()),
                         [](const auto& info) { return info.param; });

TEST(ModelFixture, EachFamilyHasOne) {
  std::set<std::string> with;
  for (const std::string& name : fixture_names()) with.insert(load_fixture(name).model->family());
  const std::vector<std::string> all = family_names();
  EXPECT_EQ(with, std::set<std::string>(all.begin(), all.end()));
}

TEST(ModelFixture, EagerAndCompiledAgreeToTheBit) {
  for (const std::string& name : fixture_names()) {
    std::vector<std::vector<float>> values[2];
    for (bool compiled : {false, true}) {
      Fixture f = load_fixture(name);
      optim::AdamW opt(f.model->parameters(), {.lr = 1e-2});
      auto step = compile(
          [&](Tensor tokens, Tensor targets) {
            const Tensor loss = f.model->loss(tokens, targets).loss;
            opt.step(grad(loss, f.model->parameters()));
            return loss;
          },
          {.enabled = compiled});
      for (int i = 0; i < 3; ++i) values[compiled].push_back(step(f.tokens, f.targets).to_vector<float>());
      for (const Parameter& p : f.model->parameters()) values[compiled].push_back(p.value().to_vector<float>());
    }
    EXPECT_EQ(values[0], values[1]) << name;
  }
}

}  // namespace
}  // namespace weft::testing
