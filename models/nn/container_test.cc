#include "models/nn/container.h"

#include <gtest/gtest.h>

#include <cmath>

#include "framework/autodiff/grad.h"
#include "framework/testing/compare.h"
#include "framework/testing/values.h"
#include "models/nn/nn.h"
#include "ops/core/core.h"

namespace weft::nn {
namespace {

using weft::testing::error_of;
using weft::testing::placed_error_of;
using weft::testing::Random;
using weft::testing::random_tensor;

std::vector<std::string> names(const Module& m) {
  std::vector<std::string> out;
  for (const auto& [name, p] : m.named_parameters()) out.push_back(name);
  return out;
}

Tensor input() {
  Random random(5);
  return random_tensor(kFloat32, {3, 4}, random);
}

TEST(Sequential, CallsItsLayersInOrder) {
  Sequential s(
      Linear(4, 8), ReLU(), [](const Tensor& x) { return x * 2.0; }, Linear(8, 2, {.bias = false}));
  EXPECT_EQ(names(s), (std::vector<std::string>{"0.weight", "0.bias", "3.weight"}));
  EXPECT_EQ(s.size(), 4u);
  const Tensor x = input();
  const Tensor want = s.at<Linear>(3)(relu(s.at<Linear>(0)(x)) * 2.0);
  EXPECT_EQ(s(x).to_vector<float>(), want.to_vector<float>());
  EXPECT_EQ(s[3].path(), "3");
  EXPECT_TRUE(s[1].is<ReLU>());
  EXPECT_EQ(Sequential()(x).to_vector<float>(), x.to_vector<float>());
  s.push_back(Dropout(0.5)).push_back(Softmax(-1));
  s.eval();
  EXPECT_FALSE(s[4].is_training());
  EXPECT_NEAR(s(x).sum().item<float>(), 3, 1e-5);
}

TEST(Sequential, NestsAndCopies) {
  Sequential inner(Linear(4, 4), Tanh());
  Sequential s(inner, Sequential(Linear(4, 4)));
  EXPECT_EQ(names(s), (std::vector<std::string>{"0.0.weight", "0.0.bias", "1.0.weight", "1.0.bias"}));
  const Sequential alias = s, copy = clone(s);
  inner.at<Linear>(0).bias.set(ones({4}));
  EXPECT_EQ(alias.parameters()[1].value().to_vector<float>()[0], 1);
  EXPECT_NE(copy.parameters()[1].value().to_vector<float>()[0], 1);
  const Tensor x = input();
  EXPECT_EQ(alias(x).to_vector<float>(), s(x).to_vector<float>());
  EXPECT_NE(copy(x).to_vector<float>(), s(x).to_vector<float>());
  // The clone lists its own layers.
  EXPECT_TRUE(copy.at<Sequential>(0).at<Linear>(0).bias == copy.parameters()[1]);
  Sequential moved = std::move(s);
  EXPECT_EQ(moved(x).to_vector<float>(), alias(x).to_vector<float>());
  EXPECT_TRUE(moved.at<Sequential>(0).at<Linear>(0).weight == moved.parameters()[0]);
  moved = clone(moved);
  EXPECT_EQ(moved(x).to_vector<float>(), alias(x).to_vector<float>());
  EXPECT_FALSE(moved.parameters()[0] == alias.parameters()[0]);
}

TEST(Sequential, FollowsALayerThatIsReplaced) {
  Sequential s(Linear(4, 4), ReLU());
  s.at<Linear>(0) = Linear(4, 6);
  EXPECT_EQ(s.parameters()[0].shape(), Shape({6, 4}));
  EXPECT_EQ(s(input()).shape(), Shape({3, 6}));
  Sequential grown;
  for (int i = 0; i < 20; ++i) grown.push_back(Linear(4, 4));
  grown.at<Linear>(3).bias = Parameter(ones({4}));
  EXPECT_TRUE(grown.parameters()[7] == grown.at<Linear>(3).bias);
}

TEST(Sequential, RefusesWhatDoesNotFit) {
  const Sequential s(Linear(4, 4));
  EXPECT_EQ(error_of([&] { s[1]; }), "Sequential: got index 1 of 1 layers; need a smaller index");
  EXPECT_EQ(error_of([&] { s.at<ReLU>(0); }),
            "Sequential: layer 0 has another type; need the type with which it was made");
  static_assert(!Layer<MoE>);  // its result is more than a tensor
  static_assert(Layer<Linear> && Layer<Attention> && Layer<Sequential> && !Layer<Bilinear> && !Layer<int>);
}

struct Doubling : Module {  // has no CallScope
  Tensor operator()(const Tensor& x) const { return cat({x, x}, 2); }
};

struct Chain : Module {
  Sequential net{Linear(8, 4), ReLU(), Linear(8, 2)};
  Chain() { register_module("net", net); }
};

TEST(Sequential, ErrorsNameTheLayer) {
  const auto place = [](const Sequential& s, const Tensor& x) {
    const std::string text = placed_error_of([&] { s(x); });
    return text.substr(std::min(text.find("; at "), text.size()));
  };
  const auto here = [](int line, const std::string& names) {
    return str_cat("; at models/nn/container_test.cc:", line, ", in ", names);
  };
  const int line = __LINE__ - 6;  // the call of s
  const Chain model;
  EXPECT_EQ(place(model.net, ones({2, 8})), here(line, "net.2 (Linear)"));
  Sequential alone(Linear(8, 4));
  alone.push_back(Doubling());
  const std::string added = str_cat("1 (Doubling, added at models/nn/container_test.cc:", __LINE__ - 1, ")");
  EXPECT_EQ(place(alone, ones({2, 8})), here(line, added));
  EXPECT_EQ(place(clone(alone), ones({2, 8})), here(line, added));
  // A layer of the layer has its own name.
  EXPECT_EQ(place(Sequential(ReLU(), model.net), ones({2, 8})), here(line, "1.2 (Linear)"));
  EXPECT_EQ(place(Sequential(Conv2d(2, 3, 3)), ones({2, 8})), here(line, "0 (Conv2d)"));
  EXPECT_EQ(place(Sequential(ConvTranspose1d(2, 3, 3)), ones({8})), here(line, "0 (ConvTranspose1d)"));
  EXPECT_EQ(place(Sequential(BatchNorm3d(2)), ones({2, 8})), here(line, "0 (BatchNorm3d)"));
  // Pools name themselves.
  EXPECT_EQ(place(Sequential(MaxPool2d(2)), ones({8})), here(line, "0.MaxPool2d"));
  EXPECT_EQ(place(Sequential([](const Tensor& t) { return t.view({3}); }), ones({8})), here(line, "0 (Lambda)"));
}

struct Blocks : Module {
  ModuleList<Linear> layers;
  ModuleDict<Linear> heads;
  Blocks() {
    for (int i = 0; i < 6; ++i) layers.push_back(Linear(4, 4));
    heads.insert("a", Linear(4, 1)).insert("b", Linear(4, 2));
    register_module("layers", layers);
    register_module("heads", heads);
  }
};

TEST(ModuleList, RegistersItsModules) {
  Blocks m;
  EXPECT_EQ(names(m).size(), 16u);
  EXPECT_EQ(names(m)[2], "layers.1.weight");
  EXPECT_EQ(names(m)[14], "heads.b.weight");
  m.layers[1].bias = Parameter(ones({4}));
  EXPECT_TRUE(m.parameters()[3] == m.layers[1].bias);
  m.heads["b"] = Linear(4, 7);
  EXPECT_EQ(m.parameters()[14].shape(), Shape({7, 4}));
  Tensor x = input();
  for (const Linear& l : m.layers) x = l(x);
  EXPECT_EQ(x.shape(), Shape({3, 4}));
  for (const auto& [name, head] : m.heads) EXPECT_EQ(head(x).size(1), name == "a" ? 1 : 7);
  const Blocks copy = clone(m);
  EXPECT_FALSE(copy.layers[0].weight == m.layers[0].weight);
  EXPECT_TRUE(copy.layers[0].weight == copy.parameters()[0]);
  EXPECT_TRUE(m.heads.contains("a") && !m.heads.contains("c"));
  EXPECT_EQ(error_of([&] { m.heads["c"]; }), "ModuleDict: there is no module 'c'; need one of its 2 names");
  EXPECT_EQ(error_of([&] { m.layers[9]; }), "ModuleList: got index 9 of 6 modules; need a smaller index");
  EXPECT_EQ(error_of([&] { m.heads.insert("a", Linear(1, 1)); }),
            "Module: the name 'a' is registered twice; need another name");
  EXPECT_EQ(m.heads.size(), 2u);
}

TEST(Module, ListsModules) {
  Blocks m;
  std::vector<std::string> paths;
  for (const auto& [path, module] : m.named_modules()) paths.push_back(path);
  EXPECT_EQ(paths, (std::vector<std::string>{"", "layers", "layers.0", "layers.1", "layers.2", "layers.3", "layers.4",
                                             "layers.5", "heads", "heads.a", "heads.b"}));
  EXPECT_EQ(m.modules().size(), 11u);
  ASSERT_EQ(m.children().size(), 2u);
  EXPECT_EQ(m.named_children()[1].first, "heads");
  EXPECT_TRUE(m.children()[0].is<ModuleList<Linear>>());
  EXPECT_TRUE(m.get_parameter("heads.a.bias") == m.heads["a"].bias);
  EXPECT_EQ(error_of([&] { m.get_parameter("heads.a.bais"); }),
            "get_parameter: there is no 'heads.a.bais' (nearest there: 'heads.a.bias'); need a path of "
            "named_parameters()");
}

TEST(Module, AppliesAFunction) {
  Sequential s(Linear(4, 4), Sequential(Linear(4, 2), Tanh()), ReLU());
  std::vector<std::string> order;
  s.apply([&](const Module& m) {
    order.push_back(std::string(m.path()));
    if (m.is<Linear>()) init::constant(m.get_parameter("weight"), 0.5);
  });
  EXPECT_EQ(order, (std::vector<std::string>{"0", "1.0", "1.1", "1", "2", ""}));
  for (size_t i : {0, 2}) EXPECT_EQ(s.parameters()[i].value().to_vector<float>()[0], 0.5f);
  // A clone and a copy keep the types after the original is destroyed.
  const auto copied = [] {
    Sequential original(Linear(4, 4));
    return std::pair(Sequential(original.at<Linear>(0), ReLU()), clone(original));
  }();
  EXPECT_TRUE(copied.first.children()[0].is<Linear>());
  EXPECT_TRUE(copied.second.children()[0].is<Linear>());
  EXPECT_FALSE(copied.second.children()[0].is<ReLU>());
  s.at<Linear>(0) = Linear(4, 4);  // a member that is replaced keeps its type
  EXPECT_TRUE(s.children()[0].is<Linear>());
}

TEST(FunctionLayers, CallTheirFunctions) {
  const Tensor x = input();
  const auto expect = [&](const Tensor& got, const Tensor& want) {
    EXPECT_EQ(got.to_vector<float>(), want.to_vector<float>());
    EXPECT_EQ(got.shape(), want.shape());
  };
  expect(Identity()(x), x);
  expect(ReLU()(x), relu(x));
  expect(SiLU()(x), silu(x));
  expect(Tanh()(x), tanh(x));
  expect(Sigmoid()(x), sigmoid(x));
  expect(LogSigmoid()(x), logsigmoid(x));
  expect(GELU()(x), gelu(x));
  expect(GELU("tanh")(x), gelu(x, "tanh"));
  expect(LeakyReLU(0.5)(x), leaky_relu(x, 0.5));
  expect(ELU(0.5)(x), elu(x, 0.5));
  expect(Softplus(2, 1)(x), softplus(x, 2, 1));
  expect(Softmax(0)(x), softmax(x, 0));
  expect(LogSoftmax(-1)(x), log_softmax(x, -1));
  expect(Flatten()(x.reshape({3, 2, 2})), x);
  expect(Unflatten(1, {2, -1})(x), x.reshape({3, 2, 2}));
  expect(Unflatten(-2, {1, 3})(x), x.reshape({1, 3, 4}));
  EXPECT_EQ(Unflatten(1, {2, -1})(zeros({0, 4})).shape(), Shape({0, 2, 2}));
  EXPECT_EQ(
      error_of([&] {
        Unflatten(1, {3, -1})(x);
      }),
      "Unflatten: sizes [3, -1] do not make the extent 4 of dim 1 of f32[3, 4]; need sizes with that product, one "
      "of them may be -1");
}

TEST(Bilinear, EqualsLoops) {
  Random random(7);
  Bilinear layer(3, 4, 2);
  layer.to(kFloat64);
  const Tensor a = random_tensor(kFloat64, {2, 5, 3}, random), b = random_tensor(kFloat64, {2, 5, 4}, random);
  const std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>(),
                            w = layer.weight.value().to_vector<double>(), c = layer.bias.value().to_vector<double>();
  std::vector<double> want;
  for (int r = 0; r < 10; ++r)
    for (int o = 0; o < 2; ++o) {
      double s = c[o];
      for (int i = 0; i < 3; ++i)
        for (int j = 0; j < 4; ++j) s += x[r * 3 + i] * w[(o * 3 + i) * 4 + j] * y[r * 4 + j];
      want.push_back(s);
    }
  EXPECT_TRUE(weft::testing::close(layer(a, b), Tensor::from_vector(want, {2, 5, 2}), kFloat64, 64));
  const TensorOptions wide{.dtype = kFloat64};
  EXPECT_EQ(layer(zeros({0, 3}, wide), zeros({0, 4}, wide)).shape(), Shape({0, 2}));
  EXPECT_EQ(layer(zeros({3}, wide), zeros({4}, wide)).shape(), Shape({2}));
  EXPECT_EQ(error_of([&] {
              layer(zeros({2, 3}), zeros({3, 4}));
            }),
            "Bilinear: got f32[2, 3] and f32[3, 4]; need floats [..., 3] and [..., 4] with equal dims before the last");
}

TEST(Embedding, PaddingStaysZero) {
  const Embedding table(4, 3, {.padding_idx = -3});
  const std::vector<float> w = table.weight.value().to_vector<float>();
  for (int i = 3; i < 6; ++i) EXPECT_EQ(w[i], 0);
  EXPECT_NE(w[0], 0);
  const Tensor t = Tensor::from_vector<int64_t>({1, 2, 1, 0}, {2, 2});
  EXPECT_EQ(table(t).slice(0, 0, 1).slice(1, 0, 1).to_vector<float>(), (std::vector<float>{0, 0, 0}));
  const std::vector<float> g = grad(sum(table(t)), std::vector<Parameter>{table.weight})[0].to_vector<float>();
  EXPECT_EQ(g, (std::vector<float>{1, 1, 1, 0, 0, 0, 1, 1, 1, 0, 0, 0}));
  EXPECT_EQ(error_of([] { Embedding(4, 3, {.padding_idx = 4}); }), "Embedding: padding_idx is 4; need -4 to 3");
  const Embedding fixed = Embedding::from_pretrained(ones({2, 3}));
  EXPECT_FALSE(fixed.weight.requires_grad());
  EXPECT_EQ(fixed.parameters()[0].value().to_vector<float>()[0], 1);
  EXPECT_EQ(error_of([] { Embedding::from_pretrained(ones({2})); }),
            "Embedding: the values are f32[2]; need floats [count, dim]");
}

}  // namespace
}  // namespace weft::nn
