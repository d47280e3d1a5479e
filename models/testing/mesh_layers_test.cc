// Training steps of a convolutional net with batch norm and of an LSTM over the ranks of dp2 equal one device's steps:
// losses, weights, running statistics (of the whole batch) and the optimiser's state.
#include <gtest/gtest.h>

#include <cmath>

#include "distributed/launch/compile.h"
#include "framework/base/switches.h"
#include "framework/testing/compare.h"
#include "weft.h"

namespace weft {
namespace {

struct Cnn : nn::Module {
  nn::Sequential net;
  Cnn()
      : net(nn::Conv2d(1, 4, 3, {.padding = 1}), nn::BatchNorm2d(4), nn::ReLU(), nn::MaxPool2d(2),
            nn::Conv2d(4, 8, 3, {.padding = 1}), nn::BatchNorm2d(8), nn::ReLU(), nn::MaxPool2d(2), nn::Flatten(),
            nn::Linear(8 * 2 * 2, 10)) {
    register_module("net", net);
  }
  Tensor loss(const Tensor& x, const Tensor& y) const { return cross_entropy(net(x), y); }
  // The samples have different means, so statistics of one rank's samples would differ.
  static std::array<Tensor, 2> batch() {
    return {randn({8, 1, 8, 8}) + arange(8).to(kFloat32).reshape({8, 1, 1, 1}), randint(0, 10, {8})};
  }
};

struct CharLstm : nn::Module {
  nn::Embedding embed;
  nn::LSTM lstm;
  nn::Linear head;
  CharLstm() : embed(16, 8), lstm(8, 12, {.num_layers = 2, .batch_first = true}), head(12, 16) {
    register_module("embed", embed);
    register_module("lstm", lstm);
    register_module("head", head);
  }
  Tensor loss(const Tensor& x, const Tensor& y) const { return cross_entropy(head(lstm(embed(x)).output), y); }
  static std::array<Tensor, 2> batch() { return {randint(0, 16, {4, 6}), randint(0, 16, {4, 6})}; }
};

struct Trained {
  std::vector<double> losses;
  std::vector<std::pair<std::string, Tensor>> values;
};

template <class Model>
Trained train(CompileOptions options) {
  set_switch("WEFT_CXX", "none");  // interpreted: quicker for so little data
  manual_seed(3);
  const Model model;
  optim::AdamW opt(model.parameters(), {.lr = 1e-2});
  auto fn = [&](Tensor x, Tensor y) {
    Tensor loss = model.loss(x, y);
    opt.step(optim::clip_grad_norm(grad(loss, opt.parameters()), 1.0).grads);
    return loss;
  };
  auto step = options.mesh.size() > 1 ? dist::compile(fn, options) : compile(fn, options);
  Trained run;
  for (int i = 0; i < 4; ++i) {
    const auto [x, y] = Model::batch();
    const Tensor loss = step(x, y);
    run.losses.push_back(loss.item());
    run.values.emplace_back(str_cat("loss ", i), loss);
  }
  for (const auto& [name, cell] : model.named_cells()) run.values.emplace_back(name, cell.value().detach());
  for (const auto& [name, cell] : opt.named_cells()) run.values.emplace_back(name, cell.value());
  return run;
}

template <class Model>
class MeshLayers : public ::testing::Test {};
using Models = ::testing::Types<Cnn, CharLstm>;
TYPED_TEST_SUITE(MeshLayers, Models);

TYPED_TEST(MeshLayers, LossesOfDp2AreThoseOfOneDevice) {
  const Trained want = train<TypeParam>({}), got = train<TypeParam>({.mesh = dist::Mesh{{"dp", 2}}});
  for (size_t i = 0; i < want.losses.size(); ++i)
    EXPECT_NEAR(got.losses[i], want.losses[i], 1e-5 * std::fabs(want.losses[i])) << "step " << i;
}

TYPED_TEST(MeshLayers, Dp2HasTheBitsOfOneDeviceWithVerifyNumerics) {
  const Trained want = train<TypeParam>({.verify_numerics = true});
  const Trained got = train<TypeParam>({.mesh = dist::Mesh{{"dp", 2}}, .verify_numerics = true});
  ASSERT_EQ(got.values.size(), want.values.size());
  for (size_t i = 0; i < want.values.size(); ++i)
    EXPECT_TRUE(testing::same_bits(got.values[i].second, want.values[i].second)) << want.values[i].first;
}

// The weights of the classes are an argument of the step whose one dim is no batch: it need not divide over the ranks.
std::vector<Tensor> weighted(const CompileOptions& options, int64_t classes, int64_t batch) {
  set_switch("WEFT_CXX", "none");  // interpreted: quicker for so little data
  manual_seed(3);
  const nn::Linear model(4, classes);
  optim::SGD opt(model.parameters(), {.lr = 0.5});
  const auto fn = [&](const Tensor& x, const Tensor& y, const Tensor& weight) {
    const Tensor loss = cross_entropy(model(x), y, {.weight = weight});
    opt.minimize(loss);
    return loss;
  };
  const auto step = options.mesh.size() > 1 ? dist::compile(fn, options) : compile(fn, options);
  std::vector<Tensor> out;
  for (int i = 0; i < 3; ++i) {
    const Tensor weight = rand({classes}) + 0.5 * i;
    out.push_back(step(randn({batch, 4}), randint(0, classes, {batch}), weight));
  }
  out.push_back(model.weight.value());
  return out;
}

TEST(MeshLayers, ClassWeightsAreAnArgumentOfTheStep) {
  for (const auto& [classes, batch] : {std::pair<int64_t, int64_t>{3, 8}, {4, 8}, {8, 8}, {5, 2}}) {
    const std::vector<Tensor> one = weighted({.verify_numerics = true}, classes, batch);
    const std::vector<Tensor> two =
        weighted({.mesh = dist::Mesh::parse("dp2"), .verify_numerics = true}, classes, batch);
    for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(testing::same_bits(one[i], two[i])) << classes << " " << i;
  }
}

}  // namespace
}  // namespace weft
