// Steps after assignments: parameters that were set, members that were replaced, and uses that are errors.
#include <gtest/gtest.h>

#include <limits>

#include "framework/testing/compare.h"
#include "models/nn/transformer/kv_cache.h"
#include "weft.h"

namespace weft {
namespace {

using testing::error_of;

struct Shared : nn::Module {
  nn::Linear encoder{4, 8}, one{8, 1}, two{8, 1};
  Shared() {
    register_module("encoder", encoder);
    register_module("one", one);
    register_module("two", two);
  }
  std::vector<Parameter> with(const nn::Linear& head) const {
    std::vector<Parameter> all = encoder.parameters();
    for (const Parameter& p : head.parameters()) all.push_back(p);
    return all;
  }
};

// Both losses are computed before the first step, which changes the encoder that the second loss has used.
TEST(Assignment, AGradientIsTakenAtTheValueThatTheLossUsed) {
  const Tensor x = randn({16, 4}), y = randn({16, 1});
  for (const bool compiled : {false, true}) {
    SCOPED_TRACE(compiled ? "compiled" : "eager");
    manual_seed(3);
    Shared net;
    const Tensor w = net.encoder.weight.value().detach();
    const auto losses = [&](const Shared& n) {
      const Tensor h = tanh(n.encoder(x));
      return std::array{mse_loss(n.one(h), y), mse_loss(n.two(h), -y)};
    };
    const auto [a, b] = losses(net);
    const std::vector<Parameter> encoder{net.encoder.weight};
    const Tensor ga = grad(a, encoder)[0], gb = grad(b, encoder)[0];
    optim::SGD first(net.with(net.one), {.lr = 0.5}), second(net.with(net.two), {.lr = 0.25});
    const auto both = [&] {
      const auto [l, m] = losses(net);
      first.minimize(l);
      second.minimize(m);
      return l + m;
    };
    if (compiled) {
      compile(both)();
    } else {
      both();
    }
    EXPECT_TRUE(testing::close(net.encoder.weight.value().detach(), w - ga * 0.5 - gb * 0.25, kFloat32, 64));
  }
}

struct Net : nn::Module {
  nn::Linear body{4, 4}, head{4, 2};
  Net() {
    register_module("body", body);
    register_module("head", head);
  }
  Tensor operator()(const Tensor& x) const { return head(relu(body(x))); }
};

TEST(Assignment, ACompiledStepFollowsAReplacedMember) {
  Net net;
  auto opt = std::make_unique<optim::SGD>(net.parameters(), optim::SGDOptions{.lr = 0.5});
  const Tensor x = randn({8, 4}), y = randn({8, 2});
  auto step = compile([&] {
    const Tensor loss = mse_loss(net(x), y);
    opt->minimize(loss);
    return loss;
  });
  step();
  step();
  EXPECT_EQ(step.stats().captures, 1);
  net.head = nn::Linear(4, 2);
  opt = std::make_unique<optim::SGD>(net.parameters(), optim::SGDOptions{.lr = 0.5});
  const Tensor before = net.head.weight.value().detach();
  const float want = mse_loss(net(x), y).item<float>();
  EXPECT_FLOAT_EQ(step().item<float>(), want);
  EXPECT_EQ(step.stats().captures, 2);
  EXPECT_FALSE(testing::same_bits(net.head.weight.value().detach(), before));
  step();
  EXPECT_EQ(step.stats().captures, 2);
}

TEST(Assignment, AnOptimiserNamesTheStateOfEachParameter) {
  nn::Linear a(2, 2), b(2, 2);
  std::vector<Parameter> all = a.parameters();
  for (const Parameter& p : b.parameters()) all.push_back(p);
  optim::AdamW opt(all), other(all);
  EXPECT_EQ(opt.state_dict().size(), opt.named_cells().size());
  opt.step(grad(a(ones({1, 2})).sum() + b(ones({1, 2})).sum(), all));
  other.load_state_dict(opt.state_dict());
  for (size_t i = 0; i < opt.named_cells().size(); ++i)
    EXPECT_TRUE(testing::same_bits(opt.named_cells()[i].second.value(), other.named_cells()[i].second.value()));
}

TEST(Assignment, ModulesAreNotConvertedInsideACompiledFunction) {
  nn::Linear m(2, 2);
  m(ones({1, 2}));
  auto f = compile([&](const Tensor& x) {
    m.to(kFloat64);
    return x;
  });
  EXPECT_EQ(error_of([&] { f(ones({1, 2})); }).substr(0, 18), "to: cell 'weight' ");
  EXPECT_EQ(m.weight.dtype(), kFloat32);
  EXPECT_EQ(m(ones({1, 2})).shape(), (Shape{1, 2}));
}

struct Node : nn::Module {
  void add(const std::string& name, const nn::Module& child) { register_module(name, child); }
};

TEST(Assignment, ModulesFormATree) {
  Node a, b, c;
  a.add("b", b);
  b.add("c", c);
  EXPECT_EQ(error_of([&] { c.add("a", a); }),
            "register_module: 'a' contains this module, as 'b.c'; need a tree of modules");
}

TEST(Assignment, GradientsHaveTheDtypeOfTheirOperand) {
  const auto twice = custom_grad([](Tensor x) { return x * 2.0; },
                                 [](Tensor x, Tensor, Tensor dy) { return (dy * 2.0).to(kFloat16); });
  const auto g = [&](const Tensor& x) { return grad(twice(x).sum(), {x})[0]; };
  const Tensor x = ones({3}).requires_grad();
  EXPECT_EQ(g(x).dtype(), kFloat32);
  auto step = compile([&](const Tensor& t) { return g(t.requires_grad()); });
  EXPECT_EQ(step(ones({3})).to_vector<float>(), (std::vector<float>{2, 2, 2}));
  EXPECT_EQ(grad(x * 3.0, {x}, {.grad_output = ones({3}, {.dtype = kFloat64})})[0].dtype(), kFloat32);
}

TEST(Assignment, ADerivativeThatCallsItselfIsAnError) {
  struct Loop {
    static Tensor call(const Tensor& x) {
      return custom_grad([](Tensor t) { return t * 2.0; }, [](Tensor t, Tensor, Tensor) { return call(t); })(x);
    }
  };
  EXPECT_EQ(error_of([] { Loop::call(ones({2})); }).substr(0, 52),
            "capture: 64 captures are open inside one another; ne");
}

TEST(Assignment, EightBitFloatsAreReadInCompiledSteps) {
  const Tensor x = Tensor::from_vector({1, 2, 3}, {3}).to(kFloat8E4M3);
  auto f = compile([](const Tensor& t) { return t.to(kFloat32) * 2.0 + 1.0; });
  EXPECT_EQ(f(x).to_vector<float>(), (std::vector<float>{3, 5, 7}));
}

TEST(Assignment, NumbersOutOfRangeAreErrors) {
  nn::Linear m(2, 2);
  optim::SGD opt(m.parameters(), {.lr = 0.1});
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(error_of([&] { opt.set_lr(-1); }), "set_lr: lr is -1; need a finite number >= 0");
  EXPECT_EQ(error_of([&] { opt.set_lr(nan); }), "set_lr: lr is nan; need a finite number >= 0");
  EXPECT_EQ(error_of([&] { optim::AdamW(m.parameters(), {.lr = inf}); }),
            "optimiser: lr is inf; need a finite number >= 0");
  EXPECT_EQ(error_of([&] { optim::AdamW(m.parameters(), {.weight_decay = nan}); }),
            "optimiser: weight_decay is nan; need a finite number >= 0");
  EXPECT_EQ(error_of([&] { optim::SGD({Parameter(Tensor::from_vector<int64_t>({3}, {1}), "n")}, {.lr = 0.1}); }),
            "optimiser: parameter 'n' is i64[1]; need a floating-point dtype of 16 bits or more");
  EXPECT_EQ(error_of([&] { uniform({2}, 1, 0); }), "uniform: range [1, 0); need finite numbers, in order");
  EXPECT_EQ(error_of([&] { normal({2}, 0, -1); }), "normal: std is -1; need a number >= 0");
}

}  // namespace
}  // namespace weft
