#include "models/nn/outputs.h"

#include <gtest/gtest.h>

#include "framework/autodiff/grad.h"
#include "framework/testing/compare.h"
#include "models/nn/nn.h"
#include "ops/composite/composite.h"
#include "ops/core/core.h"

namespace weft::nn {
namespace {

// A user's layer with a CallScope, and one without.
struct Twice : Module {
  Linear linear;
  Twice() : linear(4, 4) { register_module("linear", linear); }
  Tensor operator()(const Arg& x) const {
    CallScope call(*this, x.line());
    return call.result(linear(x) * 2.0);
  }
};
struct Net : Module {
  std::vector<Twice> blocks{2};
  Linear head{4, 3};
  Sequential tail{ReLU(), Linear(3, 2)};
  GRU gru{4, 5};
  Net() {
    register_modules("blocks", blocks);
    register_module("head", head);
    register_module("tail", tail);
    register_module("gru", gru);
  }
  Tensor operator()(const Tensor& x) const {
    Tensor h = x;
    for (const Twice& b : blocks) h = h + b(h);
    return tail(head(h));
  }
};

TEST(Outputs, AreWhatTheModulesReturn) {
  const Net net;
  const Tensor x = randn({2, 4});
  const auto f = with_outputs({"blocks.0", "blocks.1.linear", "tail"}, [&](const Tensor& x) { return net(x); });
  const auto [y, outputs] = f(x);
  const Tensor first = net.blocks[0](x), h = x + first;
  ASSERT_EQ(outputs.size(), 3u);
  for (const auto& calls : outputs) ASSERT_EQ(calls.size(), 1u);
  EXPECT_TRUE(testing::same_bits(outputs[0][0], first));
  EXPECT_TRUE(testing::same_bits(outputs[1][0], net.blocks[1].linear(h)));
  EXPECT_TRUE(testing::same_bits(outputs[2][0], y));
  EXPECT_TRUE(testing::same_bits(y, net(x)));
}

TEST(Outputs, RecordForGrad) {
  const Net net;
  const Tensor x = randn({2, 4});
  const auto [loss, outputs] = with_outputs({"head"}, [&](const Tensor& x) { return sum(square(net.head(x))); })(x);
  const Tensor g = grad(loss, std::vector<Tensor>{outputs[0][0]})[0];
  EXPECT_TRUE(testing::same_bits(g, net.head(x) * 2.0));
}

TEST(Outputs, OfEachCallAndOfEachResult) {
  const Net net;
  const Tensor x = randn({3, 2, 4});
  const auto twice = with_outputs({"gru", "head"}, [&](const Tensor& x) {
    net.gru(x);
    net.head(x);
    net.head(-x);
  });
  const auto [outputs] = twice(x);
  ASSERT_EQ(outputs[0].size(), 2u);  // output and h
  EXPECT_TRUE(testing::same_bits(outputs[0][0], net.gru(x).output));
  EXPECT_TRUE(testing::same_bits(outputs[0][1], net.gru(x).h));
  ASSERT_EQ(outputs[1].size(), 2u);
  EXPECT_TRUE(testing::same_bits(outputs[1][1], net.head(-x)));
}

TEST(Outputs, Nest) {
  const Net net;
  const Tensor x = randn({2, 4});
  const auto inner = with_outputs({"head"}, [&](const Tensor& x) { return net(x); });
  const auto [result, outer] = with_outputs({"blocks.0"}, inner)(x);
  EXPECT_TRUE(testing::same_bits(outer[0][0], net.blocks[0](x)));
  EXPECT_EQ(result.outputs[0].size(), 1u);
  const Tensor inside = checkpoint([&](const Tensor& t) { return inner(t).outputs[0][0]; }, x);
  EXPECT_TRUE(testing::same_bits(inside, result.outputs[0][0]));
}

TEST(Outputs, AnUnknownPathIsAnErrorThatNamesTheNearest) {
  const Net net;
  const auto expect_error = [](const char* path, const std::function<Tensor(const Tensor&)>& fn, const char* part) {
    testing::expect_error([&] { with_outputs({path}, fn)(randn({2, 4})); }, part);
  };
  const auto call = [&](const Tensor& x) { return net(x); };
  expect_error("blocks.1.linaer", call,
               "with_outputs: no module 'blocks.1.linaer' was called (nearest: 'blocks.1.linear'); need the path");
  expect_error("gru", call, "no module 'gru' was called");
  expect_error(
      "head", [&](const Tensor& x) { return checkpoint([&](const Tensor& t) { return net.head(t); }, x); },
      "module 'head' was called inside checkpoint");
}

}  // namespace
}  // namespace weft::nn
