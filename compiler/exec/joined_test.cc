// Concatenations without a copy: kernels of the operands write into the result, and bits and peaks stay.
#include <gtest/gtest.h>

#include "compiler/exec/testing/test_programs.h"
#include "framework/autodiff/grad.h"
#include "ops/composite/composite.h"
#include "ops/core/core.h"

namespace weft {
namespace {

using testing::normal;
using testing::Tensors;

// Launches of the compiled step that are concat.
int concats(const std::function<Tensors(Tensors)>& fn, const Tensors& in) {
  auto make = [&] { return testing::Program{{}, fn}; };
  testing::expect_same_everywhere(make, {in, in});
  auto step = compile([&](Tensors x) { return fn(x); });
  step(in);
  const std::string report = step.report();
  int n = 0;
  for (size_t at = report.find("\nlaunches"); (at = report.find(": concat", at)) != std::string::npos; ++at) ++n;
  return n;
}

TEST(Joined, GradientsOfHeadsLieInOneTensor) {
  const int64_t B = 2, T = 40, H = 3, D = 16;
  auto attention = [=](Tensors in) {
    Tensor x = in[0].requires_grad(), w = in[1].requires_grad();
    const Tensor qkv = matmul(x, w).reshape({B, T, H, 3, D});
    auto part = [&](int64_t i) { return select(qkv, 3, i).transpose(1, 2); };
    const Tensor y = scaled_dot_product_attention(part(0), part(1), part(2), {.is_causal = true});
    return grad(sum(square(y)), std::vector<Tensor>{x, w});
  };
  EXPECT_EQ(concats(attention, {normal({B, T, 48}), normal({48, H * 3 * D}) * 0.1}), 0);
}

TEST(Joined, ResultsOfKernelsAlongAnyDim) {
  for (int64_t dim : {0, 1, 2}) {
    auto fn = [=](Tensors x) {
      return Tensors{
          concat(std::vector<Tensor>{gelu(x[0]) * x[1], exp(x[1]) + 1.0, matmul(x[0], x[2]) * 2.0}, dim, SourceLine())};
    };
    EXPECT_EQ(concats(fn, {normal({8, 30, 40}), normal({8, 30, 40}), normal({8, 40, 40})}), 0) << dim;
  }
}

TEST(Joined, OthersAreCopied) {
  const Tensors in = {normal({30, 40}), normal({30, 40})};
  // Operands that are read elsewhere too, an argument, the same value twice, a sum.
  auto used = [](Tensors x) {
    const Tensor a = exp(x[0]) * x[1];
    return Tensors{concat(std::vector<Tensor>{a, gelu(x[1]) + x[0]}, 0, SourceLine()), matmul(a, x[1].transpose(0, 1))};
  };
  EXPECT_EQ(concats(used, in), 1);
  EXPECT_EQ(concats(
                [](Tensors x) {
                  return Tensors{concat(std::vector<Tensor>{exp(x[0]) * x[1], x[0]}, 1, SourceLine())};
                },
                in),
            1);
  EXPECT_EQ(concats(
                [](Tensors x) {
                  const Tensor a = exp(x[0]) * x[1];
                  return Tensors{concat(std::vector<Tensor>{a, a}, 1, SourceLine())};
                },
                in),
            1);
  EXPECT_EQ(
      concats(
          [](Tensors x) {
            return Tensors{concat(std::vector<Tensor>{softmax(x[0] * x[1], -1), exp(x[0]) * x[1]}, 1, SourceLine())};
          },
          in),
      1);
}

}  // namespace
}  // namespace weft
