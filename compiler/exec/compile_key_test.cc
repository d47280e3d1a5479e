// compile(): the key of a plan: types, layouts, structures, flags, cells.
#include <gtest/gtest.h>

#include "compiler/exec/testing/test_programs.h"
#include "framework/autodiff/grad.h"
#include "ops/core/core.h"

namespace weft {
namespace {

using testing::random_tensor;
using testing::same_bits;
using testing::Tensors;

TEST(CompileKey, StridedArgumentsArePlannedAsTheyLie) {
  int captures = 0;
  auto step = compile([&](Tensor x) {
    ++captures;
    return x * 2.0 + x.sum({0}, true);
  });
  testing::Random random(3);
  Tensor t = random_tensor(kFloat32, {4, 6}, random);
  for (testing::Layout layout : testing::kLayouts) {
    Tensor x = testing::with_layout(t, layout);
    Tensor want = x * 2.0 + x.sum({0}, true);
    EXPECT_TRUE(same_bits(step(x), want)) << testing::name_of(layout);
  }
  EXPECT_EQ(captures, 1);
  EXPECT_EQ(step.stats().captures, 1);
  EXPECT_EQ(step.stats().plans, 4);
}

TEST(CompileKey, StructuresOfArgumentsAndResults) {
  struct Out {
    Tensor loss;
    std::vector<Tensor> parts;
    std::array<Tensor, 2> pair;
  };
  auto step = compile([](std::vector<Tensor> xs, std::pair<Tensor, Tensor> p) {
    Out o{p.first + p.second, {}, {p.second, xs[0]}};
    for (const Tensor& x : xs) o.parts.push_back(x * 2.0);
    return o;
  });
  Tensor a = Tensor::from_vector({1, 2}, {2}), b = Tensor::from_vector({3, 5}, {2});
  Out o = step(std::vector<Tensor>{a, b, a}, std::pair<Tensor, Tensor>{a, b});
  EXPECT_EQ(o.loss.to_vector<float>(), (std::vector<float>{4, 7}));
  ASSERT_EQ(o.parts.size(), 3u);
  EXPECT_EQ(o.parts[1].to_vector<float>(), (std::vector<float>{6, 10}));
  EXPECT_EQ(o.pair[0].to_vector<float>(), (std::vector<float>{3, 5}));
  Out again = step(std::vector<Tensor>{a, b}, std::pair<Tensor, Tensor>{a, b});
  EXPECT_EQ(again.parts.size(), 2u);
  EXPECT_EQ(step.stats().captures, 2);
  // The same number of tensors in another structure is another program.
  auto two = compile(
      [](std::vector<Tensor> x, std::vector<Tensor> y) { return x.size() > y.size() ? x[0] + 1.0 : y[0] - 1.0; });
  EXPECT_EQ(two(Tensors{a, a}, Tensors{a}).to_vector<float>(), (std::vector<float>{2, 3}));
  EXPECT_EQ(two(Tensors{a}, Tensors{a, a}).to_vector<float>(), (std::vector<float>{0, 1}));
}

TEST(CompileKey, NoArgumentsNoResultAndCellsAsArguments) {
  Buffer n(Tensor::from_vector<int64_t>({0}, {}));
  auto count = compile([&] { n.set(n.value() + 1); });
  for (int i = 0; i < 5; ++i) count();
  EXPECT_EQ(n.value().item<int64_t>(), 5);
  Parameter p(Tensor::from_vector({1, 2}, {2}));
  auto twice = compile([](Tensor x) { return x * 2.0; });
  EXPECT_EQ(twice(p).to_vector<float>(), (std::vector<float>{2, 4}));
}

TEST(CompileKey, NewShapesCaptureAgainAndPlansAreBounded) {
  int captures = 0;
  auto step = compile([&](Tensor x) {
    ++captures;
    return x * x + 1.0;
  });
  for (int round = 0; round < 2; ++round)
    for (int64_t n = 1; n <= 20; ++n) EXPECT_EQ(step(full({n}, 3.0)).to_vector<float>(), std::vector<float>(n, 10));
  EXPECT_EQ(captures, 20);
  for (int64_t n = 21; n <= 40; ++n) step(full({n}, 3.0));
  EXPECT_EQ(step.stats().plans_kept, 32);
  step(full({40}, 3.0));
  EXPECT_EQ(captures, 40);
  step(full({1}, 3.0));  // the least recently used went first
  EXPECT_EQ(captures, 41);
  EXPECT_EQ(step.stats().captures, 41);
}

TEST(CompileKey, TooManyShapesWarnOnceAndNameTheArgument) {
  auto step = compile([](Tensor x, Tensor y) { return x.sum() + y; }, {.max_plans = 4});
  const int line = __LINE__ - 1;
  ::testing::internal::CaptureStderr();
  for (int round = 0; round < 2; ++round)
    for (int64_t n = 1; n <= 6; ++n) step(ones({n}), ones({2}));
  EXPECT_EQ(
      ::testing::internal::GetCapturedStderr(),
      str_cat("weft: compile at compiler/exec/compile_key_test.cc:", line,
              ": the step needs more than 4 plans, so plans are made again and again: argument 0 has had 5 types, "
              "now f32[5]: pad it to a few shapes, or raise CompileOptions::max_plans\n"));
  EXPECT_EQ(step.stats().captures, 12);
  EXPECT_EQ(step.stats().plans_kept, 4);
  auto enough = compile([](Tensor x) { return x.sum(); }, {.max_plans = 40});
  for (int round = 0; round < 2; ++round)
    for (int64_t n = 1; n <= 40; ++n) enough(ones({n}));
  EXPECT_EQ(enough.stats().captures, 40);
  EXPECT_EQ(testing::error_of([] { compile([](Tensor x) { return x; }, {.max_plans = 0}); }),
            "compile: max_plans is 0; need at least 1");
}

TEST(CompileKey, NumbersArePassedAsValues) {
  for (bool enabled : {false, true}) {
    auto step = compile([](Tensor x, Tensor beta) { return x * beta; }, {.enabled = enabled});
    const Tensor x = Tensor::from_vector({1, 2}, {2});
    for (double beta : {0.5, 2.0, -1.0})
      EXPECT_EQ(step(x, beta).to_vector<float>(),
                (std::vector<float>{static_cast<float>(beta), static_cast<float>(2 * beta)}));
    EXPECT_EQ(step.stats().captures, enabled ? 1 : 0);
    EXPECT_EQ(step(x, int64_t{3}).to_vector<float>(), (std::vector<float>{3, 6}));
    EXPECT_EQ(step(x, 4).to_vector<float>(), (std::vector<float>{4, 8}));
    EXPECT_EQ(step(x, 0.5f).dtype(), kFloat32);
    EXPECT_EQ(step.stats().captures, enabled ? 2 : 0);
    auto either = compile([](Tensor x, Tensor on) { return where(on, x, 0.0 - x); }, {.enabled = enabled});
    EXPECT_EQ(either(x, true).to_vector<float>(), (std::vector<float>{1, 2}));
    EXPECT_EQ(either(x, false).to_vector<float>(), (std::vector<float>{-1, -2}));
    EXPECT_EQ(either.stats().captures, enabled ? 1 : 0);
  }
}

// A number has the precision of the tensors that it meets, and changes no dtype that a number of the host would keep.
TEST(CompileKey, NumbersBesideF64AreNotRounded) {
  const double beta = 0.1;
  const TensorOptions f64{.dtype = kFloat64};
  for (bool enabled : {false, true}) {
    SCOPED_TRACE(enabled);
    const CompileOptions how{.enabled = enabled};
    const auto value = [&](const auto& fn, const Tensor& x) {
      auto inner = compile(fn, how);
      const double got = inner(x, beta).template item<double>();
      auto outer = compile([&](Tensor y) { return inner(y, beta); }, how);  // inlined
      if (!enabled) {
        EXPECT_EQ(outer(x).template item<double>(), got);
      }
      return got;
    };
    const auto times = [](Tensor x, Tensor b) { return x * b; };
    for (const Shape& shape : {Shape{}, Shape{1}}) {
      EXPECT_EQ(value(times, full(shape, 3.0, f64)), 3.0 * beta);
      EXPECT_EQ(value(times, full(shape, 3.0)), 3.0f * 0.1f);
      EXPECT_EQ(compile(times, how)(full(shape, 3.0), beta).dtype(), kFloat32);
      EXPECT_EQ(compile(times, how)(full(shape, 3, {.dtype = kInt64}), beta).dtype(), kFloat32);
    }
    const Tensor three = full({}, 3.0, f64);
    EXPECT_EQ(value([](Tensor x, Tensor b) { return x * (1.0 - b * 0.5); }, three), 3.0 * (1.0 - beta * 0.5));
    EXPECT_EQ(value([](Tensor x, Tensor b) { return x * -(b * b); }, three), 3.0 * -(beta * beta));
    EXPECT_EQ(value([](Tensor x, Tensor b) { return where(x > 0.0, b, x); }, three), beta);
    EXPECT_EQ(value([](Tensor, Tensor b) { return b.to(kFloat64); }, three), beta);
    EXPECT_EQ(value([](Tensor x, Tensor b) { return x * b.to(kFloat64).to(kFloat32); }, three), 3.0 * 0.1f);
    EXPECT_EQ(value([](Tensor, Tensor b) { return b; }, three), 0.1f);
    EXPECT_EQ(value([](Tensor x, Tensor b) { return checkpoint([&](Tensor y) { return y * b; }, x); }, three),
              3.0 * beta);
  }
  // Inside another compiled function, whose call has no numbers.
  auto inner = compile([](Tensor x, Tensor b) { return x * b; });
  auto outer = compile([&](Tensor y) { return inner(y, beta); });
  EXPECT_EQ(outer(full({}, 3.0, f64)).item<double>(), 3.0 * beta);
  EXPECT_EQ(outer(full({}, 3.0)).dtype(), kFloat32);
  // The kind of an argument is part of the key; its value is not.
  auto step = compile([](Tensor x, Tensor b) { return x * b; });
  EXPECT_EQ(step(full({2}, 3.0), beta).dtype(), kFloat32);
  EXPECT_EQ(step(full({}, 3.0), full({}, beta, f64)).dtype(), kFloat64);
  EXPECT_EQ(step(full({}, 3.0), beta).dtype(), kFloat32);
  EXPECT_EQ(step(full({}, 3.0), 0.5).item<float>(), 1.5);
  EXPECT_EQ(step.stats().captures, 3);
}

// A number of the host, an argument, and eager code give the same bits.
TEST(CompileKey, NumbersBeside16BitTensorsScaleInF32) {
  const auto bits = [](const Tensor& t) { return t.to(kFloat32).to_vector<float>(); };
  for (const DType t : {kBFloat16, kFloat16}) {
    const Tensor x = arange(1, 100).to(t);
    const auto product = compile([](const Tensor& a, const Tensor& n) { return n * a; });
    const auto quotient = compile([](const Tensor& a, const Tensor& n) { return a / n; });
    const auto tenth = compile([](const Tensor& a) { return a * 0.1; });
    EXPECT_EQ(bits(tenth(x)), bits(x * 0.1));
    for (const double n : {0.1, 3.3, 1e6, 0.5}) {
      EXPECT_EQ(bits(product(x, n)), bits(n * x)) << n;
      EXPECT_EQ(bits(quotient(x, n)), bits(x / n)) << n;
    }
  }
}

TEST(CompileKey, CallsThatCannotBeCapturedAreKnownToTheCompiler) {
  auto host = [](Tensor x, double beta) { return x * beta; };
  auto value = [](Tensor x, Tensor beta) { return x * beta; };
  using Host = decltype(host);
  using Value = decltype(value);
  static_assert(internal::declares_number<Host, Tensor, double> && !internal::is_capturable<Host, Tensor, double>);
  static_assert(internal::is_capturable<Value, Tensor, double> && internal::is_capturable<Value, Parameter, bool>);
  static_assert(!internal::is_capturable<Value, Tensor> && !internal::is_capturable<Value, Tensor, Tensor, Tensor>);
  static_assert(!internal::is_capturable<Value, Tensor, std::string> && !internal::declares_number<Value, Tensor>);
  static_assert(!internal::is_capturable<Value, Tensor, const char*>);
}

TEST(CompileKey, ArgumentsThatRecordArePartOfTheKey) {
  auto step = compile([](Tensor x) { return grad((x * x).sum(), {x})[0]; });
  const Tensor x = Tensor::from_vector({1, 2}, {2});
  const std::string refused = "grad: operand 0 (f32[2]) does not record";
  EXPECT_EQ(testing::error_of([&] { step(x); }).find(refused), 0u);
  EXPECT_EQ(step(x.requires_grad()).to_vector<float>(), (std::vector<float>{2, 4}));
  EXPECT_EQ(testing::error_of([&] { step(x); }).find(refused), 0u);
  EXPECT_EQ(testing::error_of([&] { grad(step(x.requires_grad()).sum(), {x.requires_grad()}); })
                .find("grad: the loss does not depend on anything that records; was it detached, or computed inside "
                      "NoGrad, by a compiled function (call grad inside it)"),
            0u);
}

TEST(CompileKey, HostFlagsGradModeAndCellTypesArePartOfTheKey) {
  HostFlag train(true);
  Parameter w(Tensor::from_vector({1, 2}, {2}));
  int captures = 0;
  auto step = compile([&](Tensor x) {
    ++captures;
    return train.get() ? x * w : x + w;
  });
  Tensor x = Tensor::from_vector({3, 4}, {2});
  EXPECT_EQ(step(x).to_vector<float>(), (std::vector<float>{3, 8}));
  train.set(false);
  EXPECT_EQ(step(x).to_vector<float>(), (std::vector<float>{4, 6}));
  train.set(true);
  EXPECT_EQ(step(x).to_vector<float>(), (std::vector<float>{3, 8}));
  EXPECT_EQ(captures, 2);
  {
    NoGrad guard;
    step(x);
    EXPECT_EQ(captures, 3);
  }
  w.requires_grad(false);
  step(x);
  EXPECT_EQ(captures, 4);
  w.convert(kFloat64);
  EXPECT_EQ(step(x).dtype(), kFloat64);
  EXPECT_EQ(captures, 5);
}

TEST(CompileKey, PlansOutliveTheOwnerOfAFlagTheyRead) {
  struct Layer {  // a module as compile() sees it: a flag and a cell
    HostFlag training{true};
    Parameter w{Tensor::from_vector({2}, {})};
    Tensor operator()(const Tensor& x) const { return training.get() ? x * w : x + w; }
  };
  std::unique_ptr<Layer> layer = std::make_unique<Layer>();
  int captures = 0;
  auto step = compile([&](Tensor x) {
    ++captures;
    return (*layer)(x);
  });
  Tensor one = Tensor::from_vector({3}, {1}), two = Tensor::from_vector({3, 4}, {2});
  EXPECT_EQ(step(one).to_vector<float>(), (std::vector<float>{6}));
  layer = std::make_unique<Layer>();
  EXPECT_EQ(step(two).to_vector<float>(), (std::vector<float>{6, 8}));  // asks the first plan too
  EXPECT_EQ(step(one).to_vector<float>(), (std::vector<float>{6}));
  EXPECT_EQ(captures, 2);
  HostFlag flag(true), alias = flag;
  alias.set(false);
  EXPECT_FALSE(flag.peek());
}

}  // namespace
}  // namespace weft
