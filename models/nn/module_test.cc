#include "models/nn/module.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "framework/testing/gradcheck.h"
#include "models/nn/nn.h"
#include "ops/composite/layers/activation.h"
#include "ops/core/creation.h"
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

TEST(Module, LoadRefusesValuesThatACellCannotHold) {
  struct Mixed : Module {
    Parameter w{ones({2})};
    Buffer count{zeros({}, {.dtype = kInt64})}, mask{zeros({2}, {.dtype = kBool})};
    Mixed() {
      register_parameter("w", w);
      register_buffer("count", count);
      register_buffer("mask", mask);
    }
  };
  const Mixed m;
  Tensor bytes = Tensor::empty({kBool, Device::cpu(), {2}});
  bytes.view_for_kernel().as<uint8_t>()[0] = 1;
  bytes.view_for_kernel().as<uint8_t>()[1] = 7;
  EXPECT_EQ(error_of([&] {
              m.load_state_dict({{"w", Tensor()}, {"count", full({}, 1.7)}, {"mask", ones({2}, {.dtype = kInt64})}});
            }),
            "load_state_dict: 'w' is undefined, 'count' is f32, need i64, 'mask' is i64, need bool");
  EXPECT_EQ(error_of([&] {
              m.load_state_dict({{"mask", bytes}}, false);
            }),
            "load_state_dict: 'mask' is bool and has the byte 7 at position 1, need 0 or 1");
  m.load_state_dict({{"w", ones({2}, {.dtype = kFloat64})}, {"count", full({}, 3, {.dtype = kInt32})}}, false);
  EXPECT_EQ(m.count.value().item<int64_t>(), 3);
}

TEST(Module, StateDictSavesNoTornCell) {
  const Stack m;
  StateDict before = m.state_dict();
  for (const auto& [name, cell] : m.named_cells())
    if (name == "blocks.1.up.bias" || name == "count") cell.cell().torn = true;
  const std::string all =
      "state_dict: 2 of 9 cells were torn by a step that failed half-way: 'blocks.1.up.bias', 'count'; load a "
      "checkpoint or set them first, or get the values of the others with state_dict(&torn)";
  EXPECT_EQ(error_of([&] { m.state_dict(); }), all);
  std::vector<std::string> torn{"of another call"};
  const StateDict rest = m.state_dict(&torn);
  EXPECT_EQ(torn, (std::vector<std::string>{"blocks.1.up.bias", "count"}));
  EXPECT_EQ(rest.size(), 7u);
  for (const auto& [name, value] : rest) EXPECT_EQ(value.to_vector<float>(), before.at(name).to_vector<float>());
  // Copies of a torn cell are torn, too.
  const Stack copy = clone(m);
  EXPECT_EQ(error_of([&] { copy.state_dict(); }), all);
  copy.to(kFloat64);
  EXPECT_EQ(error_of([&] { copy.state_dict(); }), all);
  // A new model accepts the other values; setting the torn cells repairs the old model.
  const Stack fresh;
  fresh.load_state_dict(rest, /*strict=*/false);
  EXPECT_EQ(fresh.blocks[0].up.weight.value().to_vector<float>(), before.at("blocks.0.up.weight").to_vector<float>());
  m.load_state_dict({{torn[0], before.at(torn[0])}, {torn[1], before.at(torn[1])}}, /*strict=*/false);
  EXPECT_EQ(m.state_dict(&torn).size(), 9u);
  EXPECT_TRUE(torn.empty());
}

TEST(Module, RefusesBadNamesAndTypes) {
  struct Twice : Module {
    Linear a{1, 1};
    Twice() {
      register_module("a", a);
      register_module("a", a);
    }
  };
  EXPECT_EQ(error_of([] { Twice(); }), "Module: the name 'a' is registered twice; need another name");
  EXPECT_EQ(error_of([] { Linear(1, 1).to(kInt64); }),
            "Module::to: cannot convert parameters to i64; need a floating-point type");
}

// A path is unique.
TEST(Module, RefusesNamesWhosePathsCollide) {
  struct Open : Module {
    using Module::register_buffer;
    using Module::register_module;
    using Module::register_parameter;
  };
  const Parameter w(ones({1}));
  const Linear layer(1, 1);
  Open m;
  m.register_module("a", layer);
  m.register_module("blocks.0", layer);
  m.register_module("blocks.1", layer);
  m.register_module("blocks.10", layer);
  const std::string end = "' continues the other, so that two paths may be equal; need another name";
  EXPECT_EQ(error_of([&] { m.register_parameter("a.weight", w); }), "Module: one of the names 'a' and 'a.weight" + end);
  EXPECT_EQ(error_of([&] { m.register_module("blocks", layer); }),
            "Module: one of the names 'blocks.0' and 'blocks" + end);
  EXPECT_EQ(error_of([&] { m.register_buffer("blocks.1.x", Buffer(ones({1}))); }),
            "Module: one of the names 'blocks.1' and 'blocks.1.x" + end);
  for (const std::string name : {"", ".b", "b.", "b..c"})
    EXPECT_EQ(error_of([&] { m.register_parameter(name, w); }),
              "Module: the name '" + name + "' is empty or has an empty part; need another name");
  for (const std::string name : {"caf\xE9", "\xED\xA0\x80", "a.\xC3"}) {
    const std::vector<std::function<void()>> registers{[&] { m.register_module(name, layer); },
                                                       [&] { m.register_parameter(name, w); },
                                                       [&] { m.register_buffer(name, Buffer(ones({1}))); }};
    for (const auto& call : registers)
      EXPECT_EQ(error_of(call),
                "Module: the name '" + name + "' is not UTF-8, the encoding of names in files; need another name");
  }
  EXPECT_EQ(m.named_cells().size(), 2u);  // one layer under four names
  m.register_parameter("caf\xC3\xA9", w);
}

TEST(Module, AMovedFromModuleHasNoMembers) {
  TwoLayers n(2, 3);
  const TwoLayers m = std::move(n);
  EXPECT_EQ(m.parameters().size(), 4u);
  const std::string text =
      "Module: used after a move from it, or before an assignment to one made from nullptr; need the new module, or a "
      "copy instead of the move (a copy shares the parameters)";
  const std::vector<std::function<void()>> uses{
      [&] { n.parameters(); },     [&] { n.named_buffers(); },
      [&] { n.state_dict(); },     [&] { n.load_state_dict({}); },
      [&] { n.modules(); },        [&] { n.children(); },
      [&] { n.train(); },          [&] { n.is_training(); },
      [&] { n.to(kFloat64); },     [&] { n.up.cast_weights(kBFloat16); },
      [&] { n.up(ones({1, 2})); },
  };
  for (const auto& use : uses) EXPECT_EQ(error_of(use), text);
  struct Later : Module {
    Linear fc{nullptr};
    BatchNorm2d norm{nullptr};
    LSTM rnn{nullptr};
    explicit Later(bool assigns) {
      if (assigns) fc = register_module("fc", Linear(2, 3));
    }
  };
  const Later empty(false);
  EXPECT_EQ(error_of([&] { empty.fc(ones({1, 2})); }), text);
  EXPECT_EQ(error_of([&] { empty.norm(ones({1, 2, 1, 1})); }), text);
  EXPECT_EQ(error_of([&] { empty.rnn(ones({1, 1, 2})); }), text);
  Later net(true);
  EXPECT_EQ(net.fc.path(), "fc");
  net.fc = Linear(2, 5);
  EXPECT_EQ(net.get_parameter("fc.weight").size(0), 5);
  EXPECT_FALSE(n.is<Linear>());
  const TwoLayers copy = n;
  EXPECT_EQ(error_of([&] { copy.parameters(); }), text);
  n = TwoLayers(2, 3);
  EXPECT_EQ(n.parameters().size(), 4u);
}

TEST(Module, ConversionKeepsValuesWithinRounding) {
  TwoLayers m(2, 3);
  const std::vector<float> before = m.up.weight.value().to_vector<float>();
  m.to(kBFloat16);
  const std::vector<float> after = m.up.weight.value().to_vector<float>();
  for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(after[i], static_cast<float>(bfloat16(before[i])));
}

// Assigning to a registered member replaces it in everything that lists members.
void expect_members(const Module& m, const std::vector<std::pair<std::string, CellHandle>>& want) {
  const auto got = m.named_cells();
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].first, want[i].first);
    EXPECT_TRUE(got[i].second == want[i].second) << got[i].first;
  }
}

TEST(Replace, AChildModule) {
  TwoLayers m(2, 3);
  m.parameters();
  m.down = Linear(3, 7);
  expect_members(
      m,
      {{"up.weight", m.up.weight}, {"up.bias", m.up.bias}, {"down.weight", m.down.weight}, {"down.bias", m.down.bias}});
  EXPECT_EQ(m.parameters()[2].shape(), Shape({7, 3}));
  EXPECT_EQ(m.down.weight.name(), "down.weight");
  EXPECT_EQ(m.state_dict().at("down.weight").shape(), Shape({7, 3}));
  m.freeze();
  EXPECT_FALSE(m.down.weight.requires_grad());
  m.to(kBFloat16);
  EXPECT_EQ(m.down.bias.dtype(), kBFloat16);
  m.eval();
  EXPECT_FALSE(m.down.is_training());
  m.down = Linear(3, 2, {.bias = false});  // again, and with other members
  expect_members(m, {{"up.weight", m.up.weight}, {"up.bias", m.up.bias}, {"down.weight", m.down.weight}});
}

TEST(Replace, AParameterOrBuffer) {
  Stack s;
  s.blocks[1].up.weight = Parameter(ones({5, 3}));
  s.blocks[0].down.bias = s.blocks[1].down.bias;  // tied
  s.count = Buffer(zeros({4}));
  EXPECT_EQ(names(s), (std::vector<std::string>{"blocks.0.up.weight", "blocks.0.up.bias", "blocks.0.down.weight",
                                                "blocks.0.down.bias", "blocks.1.up.weight", "blocks.1.up.bias",
                                                "blocks.1.down.weight"}));
  EXPECT_TRUE(s.parameters()[3] == s.blocks[1].down.bias);
  EXPECT_TRUE(s.parameters()[4] == s.blocks[1].up.weight);
  EXPECT_EQ(s.named_buffers()[0].second.shape(), Shape({4}));
  s.blocks[0].up.bias = Parameter();
  EXPECT_EQ(names(s)[1], "blocks.0.down.weight");
}

TEST(Replace, InsideAReplacedChild) {
  TwoLayers m(2, 3);
  m.up = Linear(2, 3);
  m.up.weight = Parameter(ones({3, 2}));
  EXPECT_TRUE(m.parameters()[0] == m.up.weight);
  const TwoLayers other(2, 3);
  m.up = other.up;
  m.down = std::move(m.up);
  EXPECT_EQ(names(m), (std::vector<std::string>{"up.weight", "up.bias"}));  // the same module twice
  m.up = Linear(4, 4);
  EXPECT_EQ(m.parameters().size(), 4u);
  EXPECT_TRUE(m.parameters()[0] == m.up.weight);
  EXPECT_TRUE(m.parameters()[2] == other.up.weight);
}

TEST(Replace, AMovedFromMember) {
  TwoLayers m(2, 3);
  Linear old = std::move(m.down);
  m.down = Linear(3, 9);
  EXPECT_EQ(m.parameters()[2].shape(), Shape({9, 3}));
  old = Linear(1, 1);
  EXPECT_TRUE(m.parameters()[2] == m.down.weight);
  std::swap(m.up, m.down);
  EXPECT_EQ(m.parameters().size(), 4u);
}

struct Pair : Module {
  Parameter a, b;
  Pair(double first, double second) : a(full({1}, first)), b(full({1}, second)) {
    register_parameter("a", a);
    register_parameter("b", b);
  }
};

// The module lists exactly the cells that its handles have.
void expect_listed(const Pair& m, double a, double b) {
  expect_members(m, {{"a", m.a}, {"b", m.b}});
  const StateDict values = m.state_dict();
  EXPECT_EQ(values.at("a").item<float>(), a);
  EXPECT_EQ(values.at("b").item<float>(), b);
}

TEST(Replace, ASwapOfParameters) {
  Pair m(1, 2), other(3, 4);
  std::swap(m.a, m.b);
  expect_listed(m, 2, 1);
  std::swap(m.a, other.b);
  expect_listed(m, 4, 1);
  expect_listed(other, 3, 2);
  other.b = Parameter(full({1}, 5));
  expect_listed(other, 3, 5);
  expect_listed(m, 4, 1);
  Parameter mine = std::move(m.a), yours(full({1}, 6));
  m.a = std::move(yours);
  mine = Parameter(full({1}, 7));
  yours = Parameter(full({1}, 8));
  expect_listed(m, 6, 1);
}

TEST(Replace, ASwapOfModels) {
  Pair m(1, 2), other(3, 4);
  std::swap(m, other);
  expect_listed(m, 3, 4);
  expect_listed(other, 1, 2);
  m.a = Parameter(full({1}, 5));
  std::swap(m.a, other.a);
  expect_listed(m, 1, 4);
  expect_listed(other, 5, 2);
  std::vector<Pair> models;
  for (int i = 0; i < 5; ++i) models.emplace_back(10 * i, 10 * i + 1);
  std::swap(models[0].a, models[4].b);
  expect_listed(models[0], 41, 1);
  expect_listed(models[4], 40, 0);
  std::reverse(models.begin(), models.end());
  expect_listed(models[4], 41, 1);
  std::swap(models[4].a, models[4].b);
  expect_listed(models[4], 1, 41);
}

TEST(Replace, ASwapOfChildModules) {
  TwoLayers m(2, 3), other(2, 3);
  const Linear mine = m.down, yours = other.down;
  const std::vector<float> value = yours.weight.value().to_vector<float>();
  std::swap(m.down, other.down);
  EXPECT_TRUE(m.down.weight == yours.weight && other.down.weight == mine.weight);
  for (const TwoLayers& t : {std::cref(m), std::cref(other)})
    expect_members(t, {{"up.weight", t.up.weight},
                       {"up.bias", t.up.bias},
                       {"down.weight", t.down.weight},
                       {"down.bias", t.down.bias}});
  EXPECT_EQ(m.state_dict().at("down.weight").to_vector<float>(), value);
  m.down.bias = Parameter(ones({2}));
  EXPECT_TRUE(m.parameters()[3] == m.down.bias);
  EXPECT_TRUE(other.parameters()[3] == mine.bias);
}

TEST(Replace, ASwapOfBlocksInAVector) {
  Stack original;
  Stack moved = std::move(original);
  const Parameter first = moved.blocks[0].up.weight, second = moved.blocks[1].up.weight;
  std::swap(moved.blocks[0], moved.blocks[1]);
  EXPECT_TRUE(moved.blocks[0].up.weight == second && moved.parameters()[0] == second);
  EXPECT_TRUE(moved.blocks[1].up.weight == first && moved.parameters()[4] == first);
  moved.blocks.reserve(100);  // moves the blocks, and not the model
  moved.blocks[0].up = Linear(3, 7);
  EXPECT_TRUE(moved.parameters()[0] == moved.blocks[0].up.weight);
  std::swap(moved.blocks[0], moved.blocks[1]);
  EXPECT_TRUE(moved.parameters()[0] == first);
  moved.blocks[1] = TwoLayers(3, 5);
  EXPECT_TRUE(moved.parameters()[4] == moved.blocks[1].up.weight);
  Stack copy = clone(moved);
  std::swap(copy.blocks[0], copy.blocks[1]);
  EXPECT_TRUE(copy.parameters()[0] == copy.blocks[0].up.weight);
  EXPECT_TRUE(moved.parameters()[0] == first);
}

TEST(Replace, CopiesAreNotChanged) {
  TwoLayers m(2, 3);
  Linear copy = m.down;
  const Parameter weight = m.down.weight;
  copy = Linear(5, 5);
  EXPECT_TRUE(m.parameters()[2] == weight);
  copy = m.down;
  m.down = Linear(3, 9);
  ASSERT_EQ(copy.parameters().size(), 2u);
  EXPECT_TRUE(copy.parameters()[0] == weight);
  const TwoLayers other(2, 3);
  copy = m.down;
  m.down = other.down;
  EXPECT_EQ(copy.parameters()[0].shape(), Shape({9, 3}));
  EXPECT_TRUE(m.parameters()[2] == other.down.weight);
}

TEST(Replace, InClonesAndMovedModels) {
  const Stack s;
  Stack copy = clone(s);
  copy.blocks[0].up = Linear(3, 4);
  copy.blocks[1].down.bias = Parameter(ones({8}));
  EXPECT_TRUE(copy.parameters()[0] == copy.blocks[0].up.weight);
  EXPECT_TRUE(copy.parameters()[7] == copy.blocks[1].down.bias);
  EXPECT_TRUE(s.parameters()[0] == s.blocks[0].up.weight);
  EXPECT_TRUE(s.parameters()[7] == s.blocks[1].down.bias);
  std::vector<Stack> models;
  for (int i = 0; i < 4; ++i) models.emplace_back();
  models[0].blocks[1].up = Linear(3, 6);
  models[0].count = Buffer(zeros({9}));
  EXPECT_TRUE(models[0].parameters()[4] == models[0].blocks[1].up.weight);
  EXPECT_EQ(models[0].named_buffers()[0].second.shape(), Shape({9}));
  models[0].blocks.erase(models[0].blocks.begin());
  EXPECT_TRUE(models[0].parameters()[0] == models[0].blocks[0].up.weight);
}

TEST(Replace, TakesOverThePath) {
  Stack s;
  s.blocks[1].up = Linear(3, 5);
  EXPECT_EQ(s.blocks[1].up.path(), "blocks.1.up");
  s.blocks[0] = TwoLayers(3, 5);
  EXPECT_EQ(s.blocks[0].down.path(), "blocks.0.down");
  s.blocks[0].down = Linear(5, 3);
  EXPECT_EQ(s.blocks[0].down.path(), "blocks.0.down");
  Linear old = std::move(s.blocks[0].up);
  EXPECT_EQ(s.blocks[0].up.path(), "");
  s.blocks[0].up = Linear(3, 5);
  EXPECT_EQ(s.blocks[0].up.path(), "blocks.0.up");
  old = Linear(1, 1);
  EXPECT_EQ(old.path(), "");
  Stack copy = clone(s);
  copy.blocks[1].up = Linear(3, 5);
  EXPECT_EQ(copy.blocks[1].up.path(), "blocks.1.up");
  s.blocks.erase(s.blocks.begin());
  EXPECT_EQ(s.blocks[0].up.path(), "blocks.0.up");
}

TEST(Replace, FullPrecisionStays) {
  RMSNorm norm(4);
  norm.weight = Parameter(ones({4}));
  norm.cast_weights(kBFloat16);
  EXPECT_EQ(norm.weight.dtype(), kFloat32);
  EXPECT_TRUE(norm.parameters()[0] == norm.weight);
}

}  // namespace
}  // namespace weft::nn
