#include "models/nn/layers/recurrent.h"

#include <gtest/gtest.h>

#include <cmath>

#include "framework/autodiff/grad.h"
#include "framework/dispatch/capture.h"
#include "framework/testing/compare.h"
#include "framework/testing/gradcheck.h"
#include "framework/testing/values.h"
#include "models/nn/layers/recurrent_cell.h"
#include "models/nn/transformer/model_flops.h"
#include "ops/core/core.h"

namespace weft::nn {
namespace {

using weft::testing::error_of;
using weft::testing::Random;
using weft::testing::random_tensor;
using Vec = std::vector<double>;

double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }

// One layer in one direction, by PyTorch's formulas, for one sample. `gates`: 1 RNN, 3 GRU, 4 LSTM.
struct Reference {
  int gates;
  int64_t hidden;
  Vec w_ih, w_hh, b_ih, b_hh;
  Vec h, c;

  Vec step(const Vec& x) {
    const auto n = static_cast<size_t>(hidden);
    Vec a(gates * n), b(gates * n), next(n);
    for (size_t r = 0; r < a.size(); ++r) {
      a[r] = b_ih[r];
      b[r] = b_hh[r];
      for (size_t j = 0; j < x.size(); ++j) a[r] += w_ih[r * x.size() + j] * x[j];
      for (size_t j = 0; j < n; ++j) b[r] += w_hh[r * n + j] * h[j];
    }
    for (size_t i = 0; i < n; ++i) {
      if (gates == 1) {
        next[i] = std::tanh(a[i] + b[i]);
      } else if (gates == 3) {
        const double reset = sigmoid_of(a[i] + b[i]), update = sigmoid_of(a[n + i] + b[n + i]);
        const double fresh = std::tanh(a[2 * n + i] + reset * b[2 * n + i]);
        next[i] = (1 - update) * fresh + update * h[i];
      } else {
        const double in = sigmoid_of(a[i] + b[i]), forget = sigmoid_of(a[n + i] + b[n + i]),
                     cell = std::tanh(a[2 * n + i] + b[2 * n + i]), out = sigmoid_of(a[3 * n + i] + b[3 * n + i]);
        c[i] = forget * c[i] + in * cell;
        next[i] = out * std::tanh(c[i]);
      }
    }
    return h = next;
  }
};

Vec values(const Module& m, const std::string& name) {
  return m.get_parameter(name).value().detach().to_vector<double>();
}
Reference reference(const Module& m, int gates, int64_t hidden, const std::string& end) {
  return {gates,
          hidden,
          values(m, "weight_ih" + end),
          values(m, "weight_hh" + end),
          values(m, "bias_ih" + end),
          values(m, "bias_hh" + end),
          Vec(static_cast<size_t>(hidden)),
          Vec(static_cast<size_t>(hidden))};
}

// The outputs of two layers in both directions.
Vec outputs(const Module& m, int gates, int64_t hidden, const Tensor& x) {
  std::vector<Vec> in;
  for (int64_t t = 0; t < x.size(0); ++t) in.push_back(x[t].to_vector<double>());
  for (const char* layer : {"_l0", "_l1"}) {
    std::vector<Vec> out(in.size());
    Reference forward = reference(m, gates, hidden, layer),
              back = reference(m, gates, hidden, std::string(layer) + "_reverse");
    for (size_t t = 0; t < in.size(); ++t) out[t] = forward.step(in[t]);
    for (size_t t = in.size(); t-- > 0;) {
      const Vec h = back.step(in[t]);
      out[t].insert(out[t].end(), h.begin(), h.end());
    }
    in = out;
  }
  Vec flat;
  for (const Vec& v : in) flat.insert(flat.end(), v.begin(), v.end());
  return flat;
}

template <class Layer>
void expect_reference(int gates) {
  Random random(11);
  const Layer layer(3, 4, {.num_layers = 2, .bidirectional = true});
  layer.to(kFloat64);
  const Tensor x = random_tensor(kFloat64, {5, 3}, random);
  const Vec got = layer(x).output.detach().template to_vector<double>(), want = outputs(layer, gates, 4, x);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-12) << i;
}

TEST(Recurrent, AreTheDefinitions) {
  expect_reference<RNN>(1);
  expect_reference<GRU>(3);
  expect_reference<LSTM>(4);
}

TEST(Recurrent, StatesContinueASequence) {
  Random random(12);
  const LSTM lstm(3, 4, {.num_layers = 2, .batch_first = true});
  const Tensor x = random_tensor(kFloat32, {2, 6, 3}, random);
  const auto whole = lstm(x);
  const auto first = lstm(slice(x, 1, 0, 4));
  const auto second = lstm(slice(x, 1, 4, 6), first.state);
  EXPECT_EQ(whole.output.shape(), (Shape{2, 6, 4}));
  EXPECT_TRUE(
      weft::testing::close(cat({first.output, second.output}, 1).detach(), whole.output.detach(), kFloat32, 64));
  EXPECT_TRUE(weft::testing::close(second.state.c.detach(), whole.state.c.detach(), kFloat32, 64));
  const GRU gru(3, 4);
  const auto y = gru(transpose(x, 0, 1), ones({1, 2, 4}));
  EXPECT_TRUE(weft::testing::same_bits(y.h[0].detach(), y.output[5].detach()));
}

TEST(Recurrent, GradientsAreThoseOfTheFormulas) {
  Random random(13);
  const GRU gru(2, 3);
  gru.to(kFloat64);
  EXPECT_TRUE(weft::testing::gradcheck(
      [&](std::span<const Tensor> in) { return std::vector<Tensor>{gru(in[0], in[1]).output}; },
      {random_tensor(kFloat64, {3, 2, 2}, random), random_tensor(kFloat64, {1, 2, 3}, random)}));
}

TEST(Recurrent, NamesAndErrors) {
  const LSTM lstm(3, 4, {.bidirectional = true});
  EXPECT_EQ(lstm.named_parameters()[0].first, "weight_ih_l0");
  EXPECT_EQ(lstm.named_parameters()[7].first, "bias_hh_l0_reverse");
  EXPECT_EQ(lstm.get_parameter("weight_hh_l0").shape(), (Shape{16, 4}));
  EXPECT_EQ(error_of([&] { lstm(ones({5, 2, 4})); }), "LSTM: x is f32[5, 2, 4] with 4 features; need 3");
  EXPECT_EQ(error_of([&] {
              lstm(ones({5, 2, 3}), {.h = ones({1, 2, 4})});
            }),
            "LSTM: h0 is f32[1, 2, 4]; need [2, 2, 4]");
  EXPECT_EQ(error_of([] { GRU(0, 4); }), "GRU: need positive sizes; got input 0, hidden 4, 1 layers");
}

// A cell with the parameters of a layer, called for each position.
template <class Cell, class Layer>
void copy_parameters(const Cell& cell, const Layer& layer) {
  for (const char* name : {"weight_ih", "weight_hh", "bias_ih", "bias_hh"})
    cell.get_parameter(name).set(layer.get_parameter(std::string(name) + "_l0").value());
}

TEST(RecurrentCell, IsOnePositionOfTheLayer) {
  manual_seed(3);
  const Tensor x = randn({5, 2, 3});
  const LSTM lstm(3, 4);
  const LSTMCell lstm_cell(3, 4);
  copy_parameters(lstm_cell, lstm);
  const GRU gru(3, 4);
  const GRUCell gru_cell(3, 4);
  copy_parameters(gru_cell, gru);
  const RNN rnn(3, 4, {}, true);
  const RNNCell rnn_cell(3, 4, true, true);
  copy_parameters(rnn_cell, rnn);
  LSTMCell::State s;
  Tensor g, r;
  for (int64_t t = 0; t < 5; ++t) {
    s = lstm_cell(x[t], s);
    g = gru_cell(x[t], g);
    r = rnn_cell(x[t], r);
  }
  EXPECT_TRUE(testing::close(s.h.detach(), lstm(x).state.h[0].detach(), kFloat32, 40));
  EXPECT_TRUE(testing::close(s.c.detach(), lstm(x).state.c[0].detach(), kFloat32, 40));
  EXPECT_TRUE(testing::close(g.detach(), gru(x).h[0].detach(), kFloat32, 40));
  EXPECT_TRUE(testing::close(r.detach(), rnn(x).h[0].detach(), kFloat32, 40));
  EXPECT_EQ(GRUCell(3, 4, false)(x[0][0]).shape(), Shape({4}));
  EXPECT_EQ(error_of([&] { gru_cell(ones({2, 5})); }), "GRUCell: x is f32[2, 5]; need [batch, 3] or [3]");
  EXPECT_EQ(error_of([&] { gru_cell(x[0], ones({2, 3})); }), "GRUCell: h is f32[2, 3]; need [2, 4]");
}

// 2 T B (inputs + hidden) 4 hidden operations forward, and twice this number backward.
TEST(Recurrent, ProductsOfAllStepsAreCounted) {
  const LSTM lstm(6, 5);
  const Ref<Graph> g = capture_graph([&](std::span<const Tensor> in) { return std::vector{lstm(in[0]).output}; },
                                     std::vector{TensorType{kFloat32, Device::cpu(), Shape{7, 3, 6}}});
  EXPECT_EQ(training_flops(*g), 3.0 * 2 * 7 * 3 * (6 + 5) * 4 * 5);
}

}  // namespace
}  // namespace weft::nn
