// nn::with_outputs of compiled steps, on one device and on a mesh.
#include <gtest/gtest.h>

#include "distributed/launch/compile.h"
#include "framework/base/switches.h"
#include "framework/testing/compare.h"
#include "weft.h"

namespace weft {
namespace {

struct Net : nn::Module {
  nn::Linear in{4, 8};
  std::vector<nn::TransformerBlock> blocks;
  nn::Linear out{8, 3};
  Net() {
    for (int i = 0; i < 2; ++i) blocks.emplace_back(8, nn::BlockOptions{.heads = 2});
    register_module("in", in);
    register_modules("blocks", blocks);
    register_module("out", out);
  }
  Tensor operator()(const Tensor& x) const {
    Tensor h = in(x);
    for (const nn::TransformerBlock& b : blocks) h = b(h);
    return out(h);
  }
};

// A training step with the outputs of modules that the loss depends on.
struct Step {
  Net net;
  optim::AdamW opt{net.parameters(), {.lr = 0.05}};
  auto fn() {
    return nn::with_outputs({"blocks.1.attn", "blocks.0", "out"}, [this](const Tensor& x, const Tensor& y) {
      const Tensor loss = mse_loss(net(x), y);
      opt.minimize(loss);
      return loss;
    });
  }
};

std::vector<Tensor> run(const CompileOptions& options) {
  set_switch("WEFT_CXX", "none");  // interpreted: quicker for so little data
  manual_seed(7);
  Step s;
  const Tensor x = randn({4, 5, 4}), y = randn({4, 5, 3});
  const auto step = options.mesh.size() > 1 ? dist::compile(s.fn(), options) : compile(s.fn(), options);
  std::vector<Tensor> all;
  for (int i = 0; i < 3; ++i) {
    const auto [loss, outputs] = step(x, y);
    EXPECT_EQ(outputs.size(), 3u);
    all.push_back(loss);
    for (const auto& calls : outputs) {
      EXPECT_EQ(calls.size(), 1u);
      all.insert(all.end(), calls.begin(), calls.end());
    }
  }
  return all;
}

TEST(Outputs, OfACompiledStepAreThoseOfTheEagerOne) {
  const std::vector<Tensor> eager = run({.enabled = false}), compiled = run({.numerics = "eager"});
  ASSERT_EQ(eager.size(), compiled.size());
  for (size_t i = 0; i < eager.size(); ++i) EXPECT_TRUE(testing::same_bits(eager[i], compiled[i])) << i;
  EXPECT_EQ(eager[2].shape(), (Shape{4, 5, 8}));
}

TEST(Outputs, OfAMeshAreThoseOfOneDevice) {
  const std::vector<Tensor> one = run({.verify_numerics = true});
  const std::vector<Tensor> two = run({.mesh = dist::Mesh::parse("dp2"), .verify_numerics = true});
  ASSERT_EQ(one.size(), two.size());
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(testing::same_bits(one[i], two[i])) << i;
}

TEST(Outputs, AnUnknownPathIsAnErrorOfTheCapture) {
  const Net net;
  const auto step = compile(nn::with_outputs({"blocks.3.attn"}, [&](const Tensor& x) { return net(x); }));
  testing::expect_error(
      [&] {
        step(randn({1, 5, 4}));
      },
      "no module 'blocks.3.attn' was called (nearest: 'blocks.0.attn')");
}

}  // namespace
}  // namespace weft
