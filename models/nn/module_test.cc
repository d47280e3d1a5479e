#include "models/nn/module.h"

#include <gtest/gtest.h>

#include "framework/testing/gradcheck.h"
#include "models/nn/nn.h"
#include "ops/composite/activation.h"
#include "ops/core/pointwise.h"

namespace weft::nn {
namespace {

using weft::testing::error_of;

struct TwoLayers : Module {
  Linear up, down;
  TwoLayers(int64_t d, int64_t h) : up(d, h), down(h, d) {
    register_module("up", up);
    register_module("down", down);
  }
  Tensor operator()(const Tensor& x) const { return down(gelu(up(x))); }
};

struct Stack : Module {
  std::vector<TwoLayers> blocks;
  Dropout drop{0.5};
  Buffer count = zeros_buffer({2}, kInt64);
  Stack() {
    for (int i = 0; i < 2; ++i) blocks.emplace_back(3, 5);
    register_modules("blocks", blocks);
    register_module("drop", drop);
    register_buffer("count", count);
  }
};

std::vector<std::string> names(const Module& m) {
  std::vector<std::string> out;
  for (const auto& [name, p] : m.named_parameters()) out.push_back(name);
  return out;
}

TEST(Module, ListsParametersByPathInOrder) {
  Stack s;
  EXPECT_EQ(names(s), (std::vector<std::string>{"blocks.0.up.weight", "blocks.0.up.bias", "blocks.0.down.weight",
                                                "blocks.0.down.bias", "blocks.1.up.weight", "blocks.1.up.bias",
                                                "blocks.1.down.weight", "blocks.1.down.bias"}));
  EXPECT_EQ(s.parameters().size(), 8u);
  EXPECT_EQ(s.num_parameters(), 2 * (3 * 5 + 5 + 5 * 3 + 3));
  EXPECT_EQ(s.named_buffers().size(), 1u);
  EXPECT_EQ(s.named_cells().back().first, "count");
}

TEST(Module, StampsCellsWithTheLongestPath) {
  Stack s;
  s.parameters();
  EXPECT_EQ(s.blocks[1].up.weight.name(), "blocks.1.up.weight");
  s.blocks[1].parameters();
  EXPECT_EQ(s.blocks[1].up.weight.name(), "blocks.1.up.weight");
}

TEST(Module, NothingIsAllocatedBeforeTheFirstRead) {
  Linear huge(1 << 20, 1 << 20);
  EXPECT_EQ(huge.num_parameters(), (int64_t{1} << 40) + (1 << 20));
  EXPECT_FALSE(huge.weight.materialised());
  huge.to(kBFloat16);
  EXPECT_EQ(huge.weight.dtype(), kBFloat16);
  EXPECT_FALSE(huge.weight.materialised());
}

TEST(Module, CopiesAliasAndClonesDoNot) {
  TwoLayers a(2, 3);
  TwoLayers alias = a, copy = clone(a);
  const float before = a.up.bias.value().to_vector<float>()[0];
  EXPECT_EQ(copy.up.bias.value().to_vector<float>()[0], before);
  a.up.bias.set(Tensor::from_vector({7, 8, 9}, {3}));
  EXPECT_EQ(alias.up.bias.value().to_vector<float>()[0], 7);
  EXPECT_EQ(alias.parameters()[1].value().to_vector<float>()[0], 7);
  EXPECT_EQ(copy.up.bias.value().to_vector<float>()[0], before);
  EXPECT_EQ(copy.parameters()[1].value().to_vector<float>()[0], before);
  a.eval();
  EXPECT_FALSE(alias.is_training());
  EXPECT_TRUE(copy.is_training());
}

TEST(Module, ASharedParameterIsListedOnceAndClonedOnce) {
  struct Tied : Module {
    Linear a{3, 3}, b = a;
    Tied() {
      register_module("a", a);
      register_module("b", b);
    }
  } tied;
  EXPECT_EQ(names(tied), (std::vector<std::string>{"a.weight", "a.bias"}));
  Tied copy = clone(tied);
  EXPECT_TRUE(copy.a.weight == copy.b.weight);
  EXPECT_FALSE(copy.a.weight == tied.a.weight);
}

TEST(Module, ModeReachesChildren) {
  Stack s;
  EXPECT_TRUE(s.drop.is_training());
  s.eval();
  EXPECT_FALSE(s.drop.is_training());
  s.train();
  EXPECT_TRUE(s.drop.is_training());
}

TEST(Module, FreezeStopsGradients) {
  TwoLayers m(2, 3);
  m.up.freeze();
  EXPECT_FALSE(m.up.weight.requires_grad());
  EXPECT_TRUE(m.down.weight.requires_grad());
  EXPECT_EQ(m.num_parameters(true), 2 * 3 + 2);
}

TEST(Module, StateDictRoundTrip) {
  TwoLayers a(2, 3), b(2, 3);
  b.load_state_dict(a.state_dict());
  for (const auto& [name, value] : b.state_dict())
    EXPECT_EQ(value.to_vector<float>(), a.state_dict().at(name).to_vector<float>()) << name;
}

TEST(Module, LoadNamesEveryProblemAndChangesNothing) {
  TwoLayers m(2, 3);
  StateDict sd = m.state_dict();
  const std::vector<float> before = m.down.weight.value().to_vector<float>();
  sd["up.wieght"] = sd["up.weight"];
  sd.erase("up.weight");
  sd["down.bias"] = Tensor::from_vector({1, 2, 3}, {3});
  sd["down.weight"] = Tensor::from_vector(std::vector<float>(6, 1.0f), {2, 3});
  EXPECT_EQ(error_of([&] { m.load_state_dict(sd); }),
            "load_state_dict: 1 missing: 'up.weight' (nearest there: 'up.wieght'); 1 unexpected: 'up.wieght' "
            "(nearest there: 'up.weight'); 'down.bias' has shape [3], need [2]");
  EXPECT_EQ(m.down.weight.value().to_vector<float>(), before);
  sd.erase("down.bias");
  m.load_state_dict(sd, false);
  EXPECT_EQ(m.down.weight.value().to_vector<float>()[0], 1);
}

TEST(Module, RefusesBadNamesAndTypes) {
  struct Twice : Module {
    Linear a{1, 1};
    Twice() {
      register_module("a", a);
      register_module("a", a);
    }
  };
  EXPECT_EQ(error_of([] { Twice(); }), "Module: the name 'a' is empty or registered twice");
  EXPECT_EQ(error_of([] { Linear(1, 1).to(kInt64); }),
            "Module::to: cannot convert parameters to i64; need a floating-point type");
}

TEST(Module, ConversionKeepsValuesWithinRounding) {
  TwoLayers m(2, 3);
  const std::vector<float> before = m.up.weight.value().to_vector<float>();
  m.to(kBFloat16);
  const std::vector<float> after = m.up.weight.value().to_vector<float>();
  for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(after[i], static_cast<float>(bfloat16(before[i])));
}

}  // namespace
}  // namespace weft::nn
