// Ops of a program's own: eager, compiled, with gradients, and the errors of a wrong record or call.
#include "ops/core/functions/custom_op.h"

#include <gtest/gtest.h>

#include "framework/testing/compare.h"
#include "framework/testing/gradcheck.h"
#include "weft.h"

namespace weft {
namespace {

using testing::error_of;

// y[b, m] = x[b, m] * scale[m] + {shift}, and the sums of its rows.
template <class T>
void run_scaled(const KernelCall& c) {
  const int64_t rows = c.in[0].shape[0], columns = c.in[0].shape[1];
  const T *x = c.in[0].as<T>(), *scale = c.in[1].as<T>();
  T *y = c.out[0].as<T>(), *sums = c.out[1].as<T>();
  const auto shift = static_cast<T>(c.attrs.f("shift"));
  for (int64_t r = 0; r < rows; ++r) {
    sums[r] = 0;
    for (int64_t i = 0; i < columns; ++i) sums[r] += y[r * columns + i] = x[r * columns + i] * scale[i] + shift;
  }
}

const CustomOp& scaled() {
  static const CustomOp op{{
      .name = "test.scaled",
      .num_inputs = 2,
      .num_outputs = 2,
      .infer =
          [](const InferCall& c) {
            const TensorType &x = c.in[0], &scale = c.in[1];
            WEFT_CHECK(x.shape.size() == 2 && scale.shape == Shape{x.shape[1]} && is_floating(x.dtype) &&
                           itemsize(x.dtype) > 2 && scale.dtype == x.dtype,
                       c.op.name, ": got ", x, " and ", scale, "; need [b, m] and [m] of f32 or f64");
            TensorType sums = x;
            sums.shape = Shape{x.shape[0]};
            return Types{x, sums};
          },
      .vjp =
          [](const VjpCall& c) {
            Tensor dy = c.grad[0];
            if (c.grad[1].defined()) {
              const Tensor all = unsqueeze(c.grad[1], 1).expand(c.in[0].shape());
              dy = dy.defined() ? dy + all : all;
            }
            return Grads{dy * c.in[1], sum(dy * c.in[0], {0})};
          },
      .dims = [](const Attrs&, auto in, auto out) { return DimMap::parse("b m?, m? -> b m?, b", in, out); },
      .kernel = [](const KernelCall& c) { c.in[0].dtype == kFloat64 ? run_scaled<double>(c) : run_scaled<float>(c); },
  }};
  return op;
}

TEST(CustomOp, RunsEagerAndCompiled) {
  const Tensor x = randn({6, 5}), s = randn({5});
  const auto run = [](Tensor a, Tensor b) {
    // Operands with other strides, and neighbours that are fused.
    return scaled().all({transpose(exp(a), 0, 1), b * 2}, {{"shift", 0.5}});
  };
  const Tensor wide = transpose(x, 0, 1);
  const std::vector<Tensor> eager = run(wide, s), compiled = compile(run)(wide, s);
  const Tensor want = exp(x) * (s * 2) + 0.5;
  EXPECT_TRUE(testing::close(eager[0], want, kFloat32, 8));
  EXPECT_TRUE(testing::close(eager[1], want.sum({1}), kFloat32, 40));
  EXPECT_TRUE(testing::same_bits(eager[0], compiled[0]));
  EXPECT_TRUE(testing::same_bits(eager[1], compiled[1]));
}

TEST(CustomOp, HasGradients) {
  manual_seed(4);
  const TensorFn fn = [](std::span<const Tensor> in) { return scaled().all({in[0], in[1]}, {{"shift", 0.25}}); };
  const std::vector<Tensor> in{randn({3, 4}, {.dtype = kFloat64}), randn({4}, {.dtype = kFloat64})};
  EXPECT_TRUE(testing::gradcheck(fn, in));
  EXPECT_TRUE(testing::gradgradcheck(fn, in));
}

TEST(CustomOp, OneResult) {
  const CustomOp twice{{.name = "test.twice",
                        .infer = [](const InferCall& c) { return Types{c.in[0]}; },
                        .decompose = [](const Attrs&, std::span<const Tensor> in) { return std::vector{in[0] * 2}; }}};
  EXPECT_EQ(twice({tensor({1.0, 2.0})}).to_vector<float>(), (std::vector<float>{2, 4}));
  EXPECT_EQ(compile([&](Tensor x) { return twice({x}) + 1; })(ones({2})).to_vector<float>(),
            (std::vector<float>{3, 3}));
}

TEST(CustomOp, Errors) {
  const auto begins = [](const std::string& text, const std::string& with) { return text.rfind(with, 0) == 0; };
  const Tensor x = ones({2, 3}), s = ones({3});
  std::string e = error_of([&] { scaled()({x, s}, {{"shift", 0.0}}); });
  EXPECT_TRUE(begins(e, "test.scaled: has 2 results; call all()")) << e;
  e = testing::placed_error_of([&] { scaled().all({x}, {{"shift", 0.0}}); });
  EXPECT_TRUE(begins(e, "test.scaled: got 1 operands; need 2; at compiler/exec/custom_op_test.cc:")) << e;
  e = error_of([&] { scaled().all({x, 2.0}, {{"shift", 0.0}}); });
  EXPECT_TRUE(begins(e, "test.scaled: operand 1 is a number; need a tensor")) << e;
  e = error_of([&] { scaled().all({x, x}, {{"shift", 0.0}}); });
  EXPECT_TRUE(begins(e, "test.scaled: got f32[2, 3] and f32[2, 3]; need [b, m] and [m]")) << e;
  e = error_of([&] { CustomOp({.name = "a.b", .traits = kStructural}); });
  EXPECT_TRUE(begins(e, "CustomOp: 'a.b' has no `infer`")) << e;
  e = error_of([&] { CustomOp({.name = "no spaces"}); });
  EXPECT_TRUE(begins(e, "CustomOp: the name is 'no spaces'; need letters")) << e;
  e = error_of([&] { CustomOp({.name = "a.b"}); });
  EXPECT_TRUE(begins(e, "CustomOp: 'a.b' has no `infer`")) << e;
  e = testing::placed_error_of(
      [&] { CustomOp({.name = "a.b", .infer = [](const InferCall& c) { return Types{c.in[0]}; }}); });
  EXPECT_TRUE(begins(e, "CustomOp: 'a.b' has neither `kernel` nor `decompose`; need one; at compiler/exec/")) << e;
}

// Each function of a record returns something wrong, eagerly and in a compiled step.
TEST(CustomOp, WrongResultsOfItsFunctionsAreErrors) {
  const auto same = [](const InferCall& c) { return Types{c.in[0]}; };
  const auto copy = [](const KernelCall& c) {
    std::copy_n(c.in[0].as<float>(), c.in[0].numel(), c.out[0].as<float>());
  };
  const auto one = [](const Attrs&, std::span<const Tensor> in) { return std::vector{in[0].sum()}; };
  static const CustomOp* again = nullptr;
  const CustomOp own_call({.name = "bad.recursion", .infer = same, .decompose = [](const Attrs&, auto in) {
                             return std::vector{again->all(in)[0] + again->all(in)[0]};
                           }});
  again = &own_call;
  struct Case {
    CustomOp op;
    std::string error;
  };
  const Case cases[] = {
      {CustomOp({.name = "bad.count", .num_outputs = 2, .infer = same, .kernel = copy}),
       "bad.count: `infer` returned 1 types; need 2"},
      {CustomOp({.name = "bad.dims",
                 .infer = same,
                 .dims = [](const Attrs&, auto in, auto out) { return DimMap::parse("b -> b", in, out); },
                 .kernel = copy}),
       "bad.dims: `dims`: dim map \"b -> b\": got 1 dims for f32[2, 3]; need 2"},
      {CustomOp(
           {.name = "bad.none", .infer = same, .decompose = [](const Attrs&, auto) { return std::vector<Tensor>(); }}),
       "bad.none: `decompose` returned 0 tensors; need 1"},
      {CustomOp({.name = "bad.shape", .infer = same, .decompose = one}),
       "bad.shape: result 0 of `decompose` is f32[]; need f32[2, 3], as `infer` says"},
      {CustomOp({.name = "bad.undefined",
                 .infer = same,
                 .decompose = [](const Attrs&, auto) { return std::vector<Tensor>(1); }}),
       "bad.undefined: result 0 of `decompose` is an undefined tensor"},
      {own_call, "bad.recursion: `decompose` calls the op itself"},
      {CustomOp({.name = "bad.gradients",
                 .infer = same,
                 .vjp =
                     [](const VjpCall& c) {
                       return Grads{c.grad[0], c.grad[0]};
                     },
                 .kernel = copy}),
       "bad.gradients: `vjp` returned 2 gradients; need 1"},
      {CustomOp({.name = "bad.gradient",
                 .infer = same,
                 .vjp = [](const VjpCall& c) { return Grads{c.grad[0].sum()}; },
                 .kernel = copy}),
       "bad.gradient: gradient 0 of `vjp` is f32[]; need the shape of the operand, f32[2, 3]"},
      {CustomOp({.name = "bad.constant", .infer = same, .kernel = copy}),
       "bad.constant has no derivative; need `vjp` in its record, the trait kNotDifferentiable"},
  };
  for (const Case& c : cases) {
    const auto step = [&](Tensor x) {
      const Tensor own = x.requires_grad(), y = c.op.all(std::span<const Tensor>(&own, 1))[0];
      return c.op.record().decompose ? y : grad(y.sum(), {own})[0];
    };
    const std::string eager = error_of([&] { step(ones({2, 3})); });
    EXPECT_EQ(eager.rfind(c.error, 0), 0u) << eager;
    auto compiled = compile(step);
    EXPECT_NE(error_of([&] { compiled(ones({2, 3})); }).find(c.error), std::string::npos) << c.error;
  }
}

TEST(CustomOp, GradientsHaveTheDtypeOfTheirOperand) {
  const CustomOp op({.name = "test.wide_gradient",
                     .infer = [](const InferCall& c) { return Types{c.in[0]}; },
                     .vjp = [](const VjpCall& c) { return Grads{c.grad[0].to(kFloat64)}; },
                     .decompose = [](const Attrs&, std::span<const Tensor> in) { return std::vector{in[0] * 1}; }});
  const Tensor x = ones({2}).requires_grad();
  EXPECT_EQ(grad(op({x}).sum(), {x})[0].dtype(), kFloat32);
  const CustomOp constant(
      {.name = "test.constant",
       .traits = kNotDifferentiable,
       .infer = [](const InferCall& c) { return Types{c.in[0]}; },
       .decompose = [](const Attrs&, std::span<const Tensor> in) { return std::vector{in[0] * 1}; }});
  EXPECT_EQ(grad((constant({x}) * x).sum(), {x})[0].to_vector<float>(), (std::vector<float>{1, 1}));
}

}  // namespace
}  // namespace weft
