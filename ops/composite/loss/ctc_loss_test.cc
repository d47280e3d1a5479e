#include "ops/composite/loss/ctc_loss.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "compiler/exec/compile.h"
#include "framework/autodiff/grad.h"
#include "framework/testing/gradcheck.h"
#include "framework/testing/values.h"
#include "ops/composite/layers/softmax.h"
#include "ops/core/core.h"

namespace weft::testing {
namespace {

constexpr int64_t kTime = 5, kBatch = 4, kClasses = 4, kMost = 3;
const std::vector<int64_t> kInputs = {5, 4, 3, 5}, kLengths = {2, 3, 0, 3};
// Targets of two equal labels in a row, and numbers after a target's end that are no classes.
const std::vector<std::vector<int64_t>> kTargets = {{1, 1, 77}, {2, 1, 3}, {-9, -9, -9}, {3, 3, 1}};

// The probability of the targets, as the sum over all label sequences of this length: by its definition.
double by_enumeration(const std::vector<double>& log_probs, int64_t n, int64_t blank) {
  double total = 0;
  const auto count = static_cast<int64_t>(std::pow(kClasses, kInputs[n]));
  const std::vector<int64_t> want(kTargets[n].begin(), kTargets[n].begin() + kLengths[n]);
  for (int64_t code = 0; code < count; ++code) {
    int64_t rest = code, last = -1;
    double p = 0;
    std::vector<int64_t> labels;
    for (int64_t t = 0; t < kInputs[n]; ++t, rest /= kClasses) {
      const int64_t c = rest % kClasses;
      p += log_probs[(t * kBatch + n) * kClasses + c];
      if (c != last && c != blank) labels.push_back(c);
      last = c;
    }
    if (labels == want) total += std::exp(p);
  }
  return -std::log(total);
}

Tensor scores(DType dtype = kFloat64) {
  Random random(3);
  return log_softmax(random_tensor(dtype, {kTime, kBatch, kClasses}, random, -2, 2), -1);
}
Tensor padded() {
  std::vector<int64_t> flat;
  for (const auto& t : kTargets) flat.insert(flat.end(), t.begin(), t.end());
  return Tensor::from_vector(flat, {kBatch, kMost});
}
Tensor in_one_piece() { return Tensor::from_vector<int64_t>({1, 1, 2, 1, 3, 3, 3, 1}, {8}); }

TEST(CtcLoss, EqualsTheSumOverAllAlignments) {
  const Tensor x = scores();
  const std::vector<double> values = x.to_vector<double>(),
                            got = ctc_loss(x, padded(), kInputs, kLengths, {.reduction = "none"}).to_vector<double>();
  double mean = 0;
  for (int64_t n = 0; n < kBatch; ++n) {
    const double want = by_enumeration(values, n, 0);
    EXPECT_NEAR(got[n], want, 1e-13 * std::fabs(want)) << n;
    mean += want / static_cast<double>(std::max<int64_t>(kLengths[n], 1)) / kBatch;
  }
  EXPECT_NEAR(ctc_loss(x, padded(), kInputs, kLengths).item<double>(), mean, 1e-13);
  EXPECT_EQ(ctc_loss(x, in_one_piece(), kInputs, kLengths, {.reduction = "none"}).to_vector<double>(), got);
  const Tensor one = ctc_loss(select(x, 1, 0), Tensor::from_vector<int32_t>({1, 1}, {2}),
                              full({}, 5, {.dtype = kInt32}), full({}, 2, {.dtype = kInt32}), {.reduction = "none"});
  EXPECT_EQ(one.shape(), Shape());
  EXPECT_EQ(one.item<double>(), got[0]);
}

TEST(CtcLoss, TakesAnyBlank) {
  // The classes in reverse order, so that the blank is the last one.
  const Tensor x = scores(), reversed = flip(x, 2);
  const Tensor targets = where(padded() >= 0, 3 - padded(), 0);
  const std::vector<double> want = ctc_loss(x, padded(), kInputs, kLengths, {.reduction = "none"}).to_vector<double>(),
                            got = ctc_loss(reversed, targets, kInputs, kLengths, {.blank = 3, .reduction = "none"})
                                      .to_vector<double>();
  for (int64_t n = 0; n < kBatch; ++n) EXPECT_NEAR(got[n], want[n], 1e-14);
}

TEST(CtcLoss, HasTheRightDerivative) {
  const TensorFn loss = [](std::span<const Tensor> in) {
    return std::vector<Tensor>{ctc_loss(log_softmax(in[0], -1), padded(), kInputs, kLengths)};
  };
  Random random(4);
  const std::vector<Tensor> in = {random_tensor(kFloat64, {kTime, kBatch, kClasses}, random, -2, 2)};
  EXPECT_TRUE(gradcheck(loss, in, {.roundings = 256}));
  EXPECT_TRUE(gradgradcheck(loss, in, {.roundings = 256, .elements = 6}));
}

TEST(CtcLoss, OfATargetThatDoesNotFit) {
  const Tensor x = log_softmax(zeros({2, 1, 3}), -1).requires_grad();
  const Tensor targets = Tensor::from_vector<int64_t>({1, 1}, {1, 2});  // needs a blank between: three times
  const Tensor loss = ctc_loss(x, targets, std::vector<int64_t>{2}, std::vector<int64_t>{2});
  EXPECT_TRUE(std::isinf(loss.item<float>()));
  for (float g : grad(loss, {x})[0].to_vector<float>()) EXPECT_EQ(g, 0);
  EXPECT_EQ(
      ctc_loss(x, targets, std::vector<int64_t>{2}, std::vector<int64_t>{2}, {.zero_infinity = true}).item<float>(), 0);
  EXPECT_FLOAT_EQ(ctc_loss(x, zeros({1, 0}, {.dtype = kInt64}), {2}, {0}).item<float>(), 2 * std::log(3.0f));
  // No input: only the empty target is possible.
  EXPECT_EQ(ctc_loss(x, targets, std::vector<int64_t>{0}, std::vector<int64_t>{0}).item<float>(), 0);
  EXPECT_TRUE(std::isinf(ctc_loss(x, targets, std::vector<int64_t>{0}, std::vector<int64_t>{1}).item<float>()));
}

TEST(CtcLoss, CompiledHasTheSameBits) {
  const Tensor x = scores(kFloat32), inputs = Tensor::from_vector(kInputs, {kBatch}),
               lengths = Tensor::from_vector(kLengths, {kBatch});
  auto fn = [](Tensor x, Tensor targets, Tensor inputs, Tensor lengths) {
    const Tensor leaf = x.requires_grad(), loss = ctc_loss(leaf, targets, inputs, lengths);
    return std::vector<Tensor>{loss, grad(loss, {leaf})[0]};
  };
  auto step = compile(fn);
  const std::vector<Tensor> eager = fn(x, padded(), inputs, lengths), compiled = step(x, padded(), inputs, lengths);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(same_bits(compiled[i], eager[i])) << i;
  // The same check as eagerly.
  EXPECT_NE(error_of([&] { step(x, padded(), inputs + 1, lengths); }).find("index 6"), std::string::npos);
  EXPECT_EQ(error_of([&] {
              auto flat = compile([](Tensor x, Tensor t, Tensor n) { return ctc_loss(x, t, n, n); });
              flat(x, in_one_piece(), lengths);
            }),
            "ctc_loss: targets have one dim and target_lengths no values inside a compiled function; need targets "
            "[batch, length] or lengths as std::vector<int64_t>");
}

TEST(CtcLoss, RefusesWhatDoesNotFit) {
  const Tensor x = scores(kFloat32);
  EXPECT_EQ(error_of([&] {
              ctc_loss(x, padded(), std::vector<int64_t>{5, 4, 3, 6}, kLengths);
            }),
            "ctc_loss: an input length is out of range: index_select: index 6 at position 3 is out of range; need 0 to "
            "5");
  EXPECT_NE(error_of([&] {
              ctc_loss(x, padded(), kInputs, std::vector<int64_t>{2, 3, 0, 4});
            }).find("a target length is out of range"),
            std::string::npos);
  EXPECT_NE(error_of([&] { ctc_loss(x, padded() + 4, kInputs, kLengths); }).find("a target is not a class"),
            std::string::npos);
  EXPECT_EQ(error_of([&] {
              ctc_loss(x, in_one_piece(), kInputs, std::vector<int64_t>{2, 3, 0, 4});
            }),
            "ctc_loss: targets have shape [8] and target lengths sum to 9; need the sum, or targets [N, S]");
  EXPECT_EQ(error_of([&] { ctc_loss(x, padded(), kInputs, kLengths, {.blank = 4}); }),
            "ctc_loss: blank is 4; need 0 to 3");
  EXPECT_EQ(error_of([&] { ctc_loss(x, padded(), std::vector<int64_t>{5}, kLengths); }),
            "ctc_loss: an input length of each sequence: got i64[1]; need 4 integers");
  EXPECT_EQ(error_of([&] { ctc_loss(ones({3}), padded(), kInputs, kLengths); }),
            "ctc_loss: log_probs are f32[3]; need [time, batch, classes] or [time, classes]");
}

}  // namespace
}  // namespace weft::testing
