#include "models/nn/transformer/multihead_attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "framework/autodiff/grad.h"
#include "framework/testing/compare.h"
#include "framework/testing/values.h"
#include "ops/core/core.h"

namespace weft::nn {
namespace {

using weft::testing::error_of;
using weft::testing::Random;
using weft::testing::random_tensor;

// The definition, for one sample: softmax(q kᵀ / sqrt(width) + mask) v for each head, in double.
std::vector<double> attended(const MultiheadAttention& m, const Tensor& q, const Tensor& k, const Tensor& v,
                             int64_t heads, const std::function<bool(int64_t head, int64_t q, int64_t k)>& hidden) {
  const int64_t dim = q.size(1), width = dim / heads;
  const auto w = m.in_proj_weight.value().detach().to_vector<double>(),
             b = m.in_proj_bias.value().detach().to_vector<double>(),
             o = m.out_proj.weight.value().detach().to_vector<double>(),
             ob = m.out_proj.bias.value().detach().to_vector<double>();
  const auto project = [&](const Tensor& x, int64_t part) {
    const auto in = x.to_vector<double>();
    std::vector<double> y;
    for (int64_t t = 0; t < x.size(0); ++t)
      for (int64_t i = 0; i < dim; ++i) {
        double s = b[part * dim + i];
        for (int64_t j = 0; j < dim; ++j) s += in[t * dim + j] * w[(part * dim + i) * dim + j];
        y.push_back(s);
      }
    return y;
  };
  const auto pq = project(q, 0), pk = project(k, 1), pv = project(v, 2);
  std::vector<double> y(q.size(0) * dim), out;
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t i = 0; i < q.size(0); ++i) {
      double total = 0;
      std::vector<double> p;
      for (int64_t j = 0; j < k.size(0); ++j) {
        double s = 0;
        for (int64_t d = 0; d < width; ++d) s += pq[i * dim + h * width + d] * pk[j * dim + h * width + d];
        p.push_back(hidden(h, i, j) ? 0 : std::exp(s / std::sqrt(static_cast<double>(width))));
        total += p.back();
      }
      for (int64_t j = 0; j < k.size(0); ++j)
        for (int64_t d = 0; d < width; ++d) y[i * dim + h * width + d] += p[j] / total * pv[j * dim + h * width + d];
    }
  for (int64_t i = 0; i < q.size(0); ++i)
    for (int64_t a = 0; a < dim; ++a) {
      double s = ob[a];
      for (int64_t j = 0; j < dim; ++j) s += y[i * dim + j] * o[a * dim + j];
      out.push_back(s);
    }
  return out;
}

void expect_near(const Tensor& got, const std::vector<double>& want) {
  const auto v = got.detach().to_vector<double>();
  ASSERT_EQ(v.size(), want.size());
  for (size_t i = 0; i < v.size(); ++i) EXPECT_NEAR(v[i], want[i], 1e-5) << i;
}

TEST(MultiheadAttention, IsTheDefinition) {
  Random random(7);
  MultiheadAttention m(8, 2);
  m.in_proj_bias.set(random_tensor(kFloat32, {24}, random));
  const Tensor q = random_tensor(kFloat32, {3, 8}, random), k = random_tensor(kFloat32, {5, 8}, random),
               v = random_tensor(kFloat32, {5, 8}, random);
  expect_near(m(q, k, v), attended(m, q, k, v, 2, [](int64_t, int64_t, int64_t) { return false; }));
  const Tensor mask = Tensor::from_vector<bool>({0, 0, 1, 0, 1, 1, 0, 0, 0, 0, 0, 1, 1, 0, 0}, {3, 5});
  const std::vector<bool> bits = mask.to_vector<bool>();
  const auto masked = attended(m, q, k, v, 2, [&](int64_t, int64_t i, int64_t j) { return bits[i * 5 + j]; });
  expect_near(m(q, k, v, {.attn_mask = mask}), masked);
  expect_near(m.with_weights(q, k, v, {.attn_mask = mask}).output, masked);
  const Tensor padding = Tensor::from_vector<bool>({0, 1, 0, 0, 1}, {1, 5});
  expect_near(m(q, k, v, {.key_padding_mask = padding}),
              attended(m, q, k, v, 2, [&](int64_t, int64_t, int64_t j) { return j == 1 || j == 4; }));
  const auto causal = attended(m, q, q, q, 2, [](int64_t, int64_t i, int64_t j) { return j > i; });
  expect_near(m(q, q, q, {.is_causal = true}), causal);
  expect_near(m.with_weights(q, q, q, {.is_causal = true}).output, causal);
}

TEST(MultiheadAttention, BatchesAreSamplesInBothLayouts) {
  Random random(9);
  const MultiheadAttention m(6, 3, {.kdim = 4, .vdim = 5}), first(6, 3, {.batch_first = true});
  const Tensor q = random_tensor(kFloat32, {3, 2, 6}, random), k = random_tensor(kFloat32, {4, 2, 4}, random),
               v = random_tensor(kFloat32, {4, 2, 5}, random);
  const Tensor y = m(q, k, v);
  EXPECT_EQ(y.shape(), (Shape{3, 2, 6}));
  EXPECT_TRUE(weft::testing::close(select(y, 1, 1).detach(),
                                   m(select(q, 1, 1), select(k, 1, 1), select(v, 1, 1)).detach(), kFloat32, 64));
  const Tensor x = random_tensor(kFloat32, {2, 4, 6}, random);
  EXPECT_TRUE(
      weft::testing::close(select(first(x, x, x), 0, 1).detach(), first(x[1], x[1], x[1]).detach(), kFloat32, 64));
  const auto [output, weights] = first.with_weights(x, x, x);
  EXPECT_EQ(weights.shape(), (Shape{2, 4, 4}));
  for (double s : weights.sum(-1).detach().to_vector<double>()) EXPECT_NEAR(s, 1, 1e-6);
}

TEST(MultiheadAttention, NamesAndErrors) {
  const MultiheadAttention m(8, 2);
  std::vector<std::string> names;
  for (const auto& [name, p] : m.named_parameters()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"}));
  EXPECT_EQ(error_of([] { MultiheadAttention(8, 3); }),
            "MultiheadAttention: 3 heads of embed_dim 8; need a positive number of heads that divides embed_dim");
  const Tensor x = ones({4, 2, 8});
  EXPECT_EQ(error_of([&] {
              m(x, ones({4, 3, 8}), ones({4, 3, 8}));
            }),
            "MultiheadAttention: queries, keys and values have batches 2, 3, 3, and keys and values lengths 4, 4; need "
            "equal batches, and equal lengths of keys and values");
  EXPECT_EQ(error_of([&] {
              m(x, x, x, {.attn_mask = ones({4, 3})});
            }),
            "MultiheadAttention: attn_mask is f32[4, 3]; need [4, 4] or [4, 4, 4]");
  EXPECT_EQ(error_of([] { TransformerEncoderLayer(8, 2, {.activation = "tanh"}); }),
            "Transformer layer: activation is 'tanh'; need \"relu\" or \"gelu\"");
}

TEST(MultiheadAttention, LayersTrainAndEvaluate) {
  const TransformerEncoderLayer encoder(8, 2, {.dim_feedforward = 16, .batch_first = true});
  const TransformerDecoderLayer decoder(8, 2, {.dim_feedforward = 16, .batch_first = true, .norm_first = true});
  const Tensor source = randn({2, 5, 8}), target = randn({2, 3, 8});
  const auto run = [&] { return decoder(target, encoder(source), {.is_causal = true}); };
  EXPECT_EQ(run().shape(), (Shape{2, 3, 8}));
  for (const Tensor& g : grad(run().sum(), encoder.parameters())) EXPECT_TRUE(isfinite(g).to_vector<bool>()[0]);
  encoder.eval();
  decoder.eval();
  EXPECT_TRUE(weft::testing::same_bits(run().detach(), run().detach()));
  EXPECT_EQ(encoder.state_dict().count("self_attn.out_proj.weight"), 1u);
  EXPECT_EQ(decoder.state_dict().count("multihead_attn.in_proj_weight"), 1u);
}

}  // namespace
}  // namespace weft::nn
