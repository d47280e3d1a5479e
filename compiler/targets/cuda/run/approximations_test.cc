// Kernels of fused bodies with 16-bit values use the hardware's approximations (print/approximations.inc), others keep
// the CPU's bits. The emulated GPU's approximations are within the error bounds of the hardware's instructions. Its f32
// results are within the bounds of compiler/verify and near f64 results, at all special values too.
#include <gtest/gtest.h>

#include <cmath>

#include "compiler/loop_ir/fused.h"
#include "compiler/passes/lower.h"
#include "compiler/targets/cuda/run/target.h"
#include "compiler/targets/cuda/testing/gpu/emulated_gpu.h"
#include "compiler/targets/cuda/testing/gpu/run_operation.h"
#include "compiler/verify/error_bounds.h"
#include "framework/dispatch/capture.h"
#include "ops/composite/composite.h"
#include "ops/core/core.h"

namespace weft::cuda {
namespace {

using Args = std::span<const Tensor>;

Ref<Graph> captured(const TensorFn& fn, const std::vector<Tensor>& in) {
  std::vector<TensorType> types;
  for (const Tensor& t : in) types.push_back(t.type());
  return weft::internal::lower(*capture_graph(fn, types));
}

struct Ran {
  std::vector<Tensor> out;
  std::vector<weft::internal::BoundedValue> bounds;
};
Ran run(const TensorFn& fn, const std::vector<Tensor>& in) {
  const Ref<Graph> body = captured(fn, in);
  EXPECT_TRUE(approximates(*body, false));
  std::vector<TensorType> out;
  for (Value v : body->outputs) out.push_back(body->type(v));
  return {testing::run_operation(loop_ir::fused_op, Attrs{{"body", body}}, in, out).out,
          weft::internal::bounded_outputs(*body, in, 0, true)};
}

GpuProperties properties() {
  GpuProperties p;
  p.sm = 90;
  p.multiprocessors = 132;
  p.grid_x = 2147483647;
  p.shared_per_block_optin = 227 * 1024;
  return p;
}

std::string text_of(const TensorFn& fn, const std::vector<Tensor>& in, bool round_like_eager = false) {
  const Ref<Graph> body = captured(fn, in);
  std::vector<StridedView> from, to;
  std::vector<Tensor> results;
  for (const Tensor& t : in) from.push_back(t.view_for_kernel());
  for (Value v : body->outputs) results.push_back(Tensor::empty(body->type(v)));
  for (const Tensor& t : results) to.push_back(t.view_for_kernel());
  const std::string all = prepare(loop_ir::fused_op, Attrs{{"body", body}}, from, to, properties(), 16,
                                  {.round_like_eager = round_like_eager})
                              ->text();
  return all.substr(all.find("__global__"));
}

bool has(const std::string& text, const char* word) { return text.find(word) != text.npos; }

TEST(Approximations, AreInKernelsThatHold16BitValues) {
  const auto softmax_of = [](Args x) { return std::vector{softmax(x[0], -1)}; };
  const Tensor wide = zeros({4, 256}), narrow = cast(wide, kBFloat16);
  for (DType t : {kBFloat16, kFloat16}) {
    const std::string text = text_of(softmax_of, {cast(wide, t)});
    EXPECT_TRUE(has(text, "near_exp(") && has(text, "near_reciprocal(") && !has(text, "w_exp(")) << text;
  }
  for (const std::string& text : {text_of(softmax_of, {wide}), text_of(softmax_of, {narrow}, true)})
    EXPECT_TRUE(!has(text, "near_") && has(text, "w_exp(")) << text;
  // An eager call, and a launch of a step that is not a group.
  const Ref<Graph> one = captured([](Args x) { return std::vector{exp(x[0])}; }, {narrow});
  const Tensor to = zeros_like(narrow);
  const std::vector<StridedView> from{narrow.view_for_kernel()}, into{to.view_for_kernel()};
  EXPECT_FALSE(has(prepare(*one->node(one->outputs[0]).op, {}, from, into, properties(), 16, {})->text(), "near_"));
}

// A kernel that rounds to whole numbers divides exactly: 6 * (1 / 3) may be less than 2.
TEST(Approximations, KeepWholeQuotients) {
  const std::string text = text_of([](Args x) { return std::vector{floor(x[0] / x[1]) + exp(x[0])}; },
                                   {zeros({64}, {.dtype = kBFloat16}), zeros({64}, {.dtype = kBFloat16})});
  EXPECT_TRUE(has(text, " / ") && has(text, "near_exp(") && !has(text, "near_reciprocal(")) << text;
}

std::vector<float> special_values() {
  constexpr float inf = INFINITY;
  std::vector<float> all{0,      -0.0f, inf,      -inf,     NAN,      1,        -1,      1e-45f, -1e-45f, 1e-39f,
                         1e-38f, 3e38f, -3e38f,   1.7e38f,  88.7f,    88.8f,    -87.3f,  -87.4f, -103.0f, -104.0f,
                         128,    -128,  0.99999f, 1.00001f, 0.62499f, 0.62501f, -1e-20f, 1e-4f};
  for (float x = 1e-7f; x < 1e7f; x *= 1.37f) all.insert(all.end(), {x, -x});
  for (float x = -12; x < 12; x += 0.07f) all.push_back(x);
  return all;
}

// `error`: relative; `near_one`: absolute, for results near 0 of operands near 1; `growth`: relative, times |x|.
void check(const char* name, const std::function<Tensor(const Tensor&, const Tensor&)>& f, double error,
           double near_one = 0, double growth = 0) {
  const std::vector<float> special = special_values();
  std::vector<float> a, b;
  for (float x : special)
    for (float y : {1.0f, 3.0f, -7e-3f, 0.0f, -INFINITY, 1e-38f, 2e38f}) a.push_back(x), b.push_back(y);
  const int64_t n = static_cast<int64_t>(a.size());
  const Tensor x = Tensor::from_vector(a, {n}), y = Tensor::from_vector(b, {n});
  for (DType t : {kBFloat16, kFloat16}) {
    const Ran r = run(
        [&](Args in) {
          const Tensor v = f(in[0], in[1]);
          return std::vector{v, cast(v, t)};
        },
        {x, y});
    for (size_t i = 0; i < 2; ++i) {
      const int64_t at = weft::internal::first_outside(r.out[i], r.bounds[i]);
      EXPECT_EQ(at, -1) << name << " of " << (at < 0 ? 0 : a[at]) << ", " << (at < 0 ? 0 : b[at]);
    }
    const std::vector<float> got = r.out[0].to_vector<float>();
    const std::vector<double> want = f(cast(x, kFloat64), cast(y, kFloat64)).to_vector<double>();
    for (int64_t i = 0; i < n; ++i) {
      const auto rounded = static_cast<float>(want[i]);
      if (std::isnan(got[i]) && std::isnan(want[i])) continue;
      if (got[i] == rounded || (std::abs(want[i]) < 0x1p-126 && std::abs(got[i]) <= 0x1p-126f)) continue;
      const double off =
          std::abs(got[i] - want[i]) / (std::abs(want[i]) * (error + growth * std::abs(a[i])) + near_one);
      EXPECT_LE(off, 1) << name << " of " << a[i] << ", " << b[i] << ": " << got[i] << ", not " << want[i];
    }
  }
}

TEST(Approximations, KeepToTheirBounds) {
  testing::ScopedEmulatedGpu gpu;
  check(
      "exp", [](const Tensor& x, const Tensor&) { return exp(x); }, 5e-7, 0, 8e-8);
  check(
      "log", [](const Tensor& x, const Tensor&) { return log(x); }, 5e-7, 0x1p-22);
  check(
      "tanh", [](const Tensor& x, const Tensor&) { return tanh(x); }, 5e-7);
  check(
      "sigmoid", [](const Tensor& x, const Tensor&) { return sigmoid(x); }, 5e-7, 0, 8e-8);
  check(
      "sqrt", [](const Tensor& x, const Tensor&) { return sqrt(x); }, 5e-7);
  check(
      "rsqrt", [](const Tensor& x, const Tensor&) { return rsqrt(x); }, 5e-7);
  check(
      "reciprocal", [](const Tensor& x, const Tensor&) { return reciprocal(x); }, 5e-7);
  check(
      "division", [](const Tensor& x, const Tensor& y) { return x / y; }, 5e-7);
}

// The bounds without approximations do not hold e^x for large |x|.
TEST(Approximations, NeedTheirBounds) {
  testing::ScopedEmulatedGpu gpu;
  const TensorFn both = [](Args x) { return std::vector{exp(x[0]), cast(exp(x[0]), kBFloat16)}; };
  std::vector<float> v;
  for (float x = 20; x < 80; x += 0.37f) v.insert(v.end(), {x, -x});
  const Tensor x = Tensor::from_vector(v, {static_cast<int64_t>(v.size())});
  const Ran r = run(both, {x});
  const auto exact = weft::internal::bounded_outputs(*captured(both, {x}), std::vector{x});
  EXPECT_EQ(weft::internal::first_outside(r.out[0], r.bounds[0]), -1);
  EXPECT_NE(weft::internal::first_outside(r.out[0], exact[0]), -1);
}

// Masked rows: -inf gives 0, and a row of -inf NaN, as the ops one by one.
TEST(Approximations, MaskedSoftmax) {
  testing::ScopedEmulatedGpu gpu;
  std::vector<float> v(4 * 96);
  for (size_t i = 0; i < v.size(); ++i) {
    const size_t row = i / 96;
    v[i] = row == 0 || (row == 1 && i % 3) ? -INFINITY : static_cast<float>(i * 37 % 101) * (row == 3 ? 3.0f : 0.1f);
  }
  const Tensor x = cast(Tensor::from_vector(v, {4, 96}), kBFloat16);
  const Ran r = run(
      [](Args in) {
        return std::vector{softmax(in[0], -1), logsumexp(cast(in[0], kFloat32), {-1})};
      },
      {x});
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(weft::internal::first_outside(r.out[i], r.bounds[i]), -1) << i;
  const std::vector<double> want = softmax(cast(x, kFloat64), -1).to_vector<double>();
  const std::vector<float> got = cast(r.out[0], kFloat32).to_vector<float>();
  for (size_t i = 0; i < v.size(); ++i)
    EXPECT_TRUE(i < 96 ? std::isnan(got[i]) && std::isnan(want[i])
                       : std::abs(got[i] - want[i]) <= want[i] * 0.00393 + 1e-38)
        << i << ": " << got[i] << ", not " << want[i];
  const std::vector<double> sums = logsumexp(cast(x, kFloat64), {-1}).to_vector<double>();
  const std::vector<float> near = r.out[1].to_vector<float>();
  for (size_t i = 1; i < 4; ++i) EXPECT_NEAR(near[i] / sums[i], 1, 1e-6) << i;
}

}  // namespace
}  // namespace weft::cuda
