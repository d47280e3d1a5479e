// Attention that a program writes with matmul and softmax, in all float dtypes and with the masks of everyday code:
// eager and compiled results and gradients against the same program in f64. Bounds: a score of 16 bits is rounded at
// most kRoundings times, and its absolute error is the relative error of its probability; a probability, a gradient and
// a result are rounded once each.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "compiler/exec/compile.h"
#include "framework/autodiff/grad.h"
#include "framework/testing/compare.h"
#include "framework/testing/values.h"
#include "ops/composite/composite.h"
#include "ops/core/core.h"

namespace weft {
namespace {

using testing::Random;
using testing::random_tensor;
using testing::unit_roundoff;

constexpr double kInf = std::numeric_limits<double>::infinity(), kRoundings = 6, kScore = 6;
constexpr int64_t kRows = 12, kKeys = 20, kD = 16;

/// Every row sees a key. Position-dependent tensors are written as programs write them.
Tensor visible() { return ge(unsqueeze(arange(kRows), 1) + 3, unsqueeze(arange(kKeys), 0)); }
Tensor distance() { return unsqueeze(arange(kKeys), 0) - unsqueeze(arange(kRows), 1); }

struct Form {
  const char* name;
  /// From the product q k^T, and a table [rows, keys] of numbers in [-1, 1], to the operand of softmax.
  Tensor (*scores)(const Tensor& product, const Tensor& table);
};
const Form kForms[] = {
    {"plain", [](const Tensor& s, const Tensor&) { return s * 0.25; }},
    {"divided", [](const Tensor& s, const Tensor&) { return s / std::sqrt(16.0); }},
    {"scale of more digits", [](const Tensor& s, const Tensor&) { return s * 0.3; }},
    {"where -inf", [](const Tensor& s, const Tensor&) { return where(visible(), s / 4.0, -kInf); }},
    {"where -6e4", [](const Tensor& s, const Tensor&) { return where(visible(), s / 4.0, -6e4); }},
    {"where -1e9",
     [](const Tensor& s, const Tensor&) { return where(visible(), s / 4.0, s.dtype() == kFloat16 ? -65504 : -1e9); }},
    {"masked_fill -inf",
     [](const Tensor& s, const Tensor&) { return masked_fill(s / 4.0, logical_not(visible()), -kInf); }},
    {"masked_fill and scale",
     [](const Tensor& s, const Tensor&) { return masked_fill(s, logical_not(visible()), -1e4) * 0.25; }},
    {"a row without keys",
     [](const Tensor& s, const Tensor&) { return where(lt(unsqueeze(arange(kRows), 1), 5) & visible(), s, -6e4); }},
    {"added 0 and -inf",
     [](const Tensor& s, const Tensor&) { return s / 4.0 + where(visible(), 0.0, -kInf).to(s.dtype()); }},
    {"added 0 and -3e4",
     [](const Tensor& s, const Tensor&) { return s / 4.0 + where(visible(), 0.0, -3e4).to(s.dtype()); }},
    {"added table", [](const Tensor& s, const Tensor& t) { return s / 4.0 + t; }},
    {"table and mask", [](const Tensor& s, const Tensor& t) { return where(visible(), s * 0.25 + t, -kInf); }},
    {"tanh cap", [](const Tensor& s, const Tensor&) { return where(visible(), tanh(s / 20.0) * 5.0, -kInf); }},
    {"alibi", [](const Tensor& s,
                 const Tensor&) { return where(visible(), s / 4.0 + distance().to(s.dtype()) * 0.0625, -kInf); }},
    {"relative positions",
     [](const Tensor& s, const Tensor& t) {
       const Tensor by_distance = index_select(flatten(t), 0, flatten(distance() + (kRows - 1)));
       return s / 4.0 + reshape(by_distance, {kRows, kKeys});
     }},
    {"scores in f32",
     [](const Tensor& s, const Tensor&) { return where(visible(), s.to(kFloat32) / 4.0, -1e30).to(s.dtype()); }},
};

struct Operands {
  std::vector<Tensor> of;  // q, k, v, table, gradient of the result
  explicit Operands(DType t) {
    Random random(3);
    for (const Shape& s :
         {Shape{2, 2, kRows, kD}, {2, 2, kKeys, kD}, {2, 2, kKeys, kD}, {kRows, kKeys}, {2, 2, kRows, kD}})
      of.push_back(random_tensor(t, s, random, -1, 1));
  }
};

/// The result and the gradients of q, k and v.
std::vector<Tensor> step_of(const Form& form, const std::vector<Tensor>& in) {
  const std::vector<Tensor> wrt{in[0].requires_grad(), in[1].requires_grad(), in[2].requires_grad()};
  std::vector<Tensor> out{matmul(softmax(form.scores(matmul(wrt[0], wrt[1].mT()), in[3]), -1), wrt[2])};
  for (const Tensor& g : grad(out[0], wrt, {.grad_output = in[4].to(out[0].dtype())})) out.push_back(g);
  return out;
}

/// `low`: the dtype to which scores are rounded.
void expect_near(const Form& form, const std::vector<Tensor>& got, const std::vector<Tensor>& want, DType low) {
  const double u = unit_roundoff(low);
  // A score is at most kScore; masked scores have no probability, or all the same.
  const double relative = std::expm1(2 * kRoundings * u * kScore) + 4 * u + 200 * 0x1p-24;
  // Gradients of scores are at most 2 |dout v| <= 2 * 16, and at most a sum of probabilities over keys is 1.
  const double score = 3 * relative * 2 * kD;
  const double bounds[] = {relative, score, score * kRows, 2 * relative * kRows};
  for (size_t i = 0; i < 4; ++i) {
    const std::vector<double> a = got[i].to(kFloat64).to_vector<double>(), b = want[i].to_vector<double>();
    ASSERT_EQ(a.size(), b.size());
    for (size_t e = 0; e < a.size(); ++e)
      ASSERT_NEAR(a[e], b[e], bounds[i]) << form.name << ", result " << i << ", element " << e;
  }
}

TEST(WrittenAttention, OfAnyDtypeEqualsF64) {
  for (DType t : {kFloat32, kBFloat16, kFloat16})
    for (const Form& form : kForms) {
      SCOPED_TRACE(str_cat(t, " ", form.name));
      const Operands o(t);
      std::vector<Tensor> wide;
      for (const Tensor& x : o.of) wide.push_back(x.to(kFloat64));
      const std::vector<Tensor> want = step_of(form, wide);
      const auto step = [&](const std::vector<Tensor>& in) { return step_of(form, in); };
      for (const char* numerics : {"fast", "eager"})
        expect_near(form, compile(step, {.numerics = numerics, .verify = t == kFloat32})(o.of), want, t);
      expect_near(form, step(o.of), want, t);
    }
}

TEST(WrittenAttention, UnderAutocastEqualsF64) {
  const Operands o(kFloat32);
  std::vector<Tensor> wide;
  for (const Tensor& x : o.of) wide.push_back(x.to(kFloat64));
  for (DType low : {kBFloat16, kFloat16})
    for (const Form& form : kForms) {
      SCOPED_TRACE(str_cat(low, " ", form.name));
      const std::vector<Tensor> want = step_of(form, wide);
      const auto step = [&](const std::vector<Tensor>& in) { return step_of(form, in); };
      for (bool enabled : {false, true})
        expect_near(form, compile(step, {.enabled = enabled, .autocast = low})(o.of), want, low);
    }
}

}  // namespace
}  // namespace weft
