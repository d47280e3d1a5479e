#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "framework/autodiff/grad.h"
#include "framework/testing/compare.h"
#include "framework/testing/values.h"
#include "models/nn/nn.h"
#include "ops/composite/layers/moe.h"
#include "ops/core/core.h"

namespace weft::nn {
namespace {

using weft::testing::error_of;
using weft::testing::Random;
using weft::testing::random_tensor;

double at(const std::vector<double>& v, const Shape& shape, std::initializer_list<int64_t> index) {
  int64_t flat = 0;
  int d = 0;
  for (int64_t i : index) flat = flat * shape[d++] + i;
  return v[flat];
}

TEST(Layers, ShapesAndDtypes) {
  Random random(1);
  const Tensor x = random_tensor(kBFloat16, {2, 5, 8}, random);
  EXPECT_EQ(Linear(8, 3)(x).type().to_string(), "bf16[2, 5, 3]");
  EXPECT_EQ(LayerNorm(8)(x).type().to_string(), "bf16[2, 5, 8]");
  EXPECT_EQ(RMSNorm(8)(x).type().to_string(), "bf16[2, 5, 8]");
  EXPECT_EQ(Mlp(8, 12)(x).type().to_string(), "bf16[2, 5, 8]");
  EXPECT_EQ(SwiGlu(8, 12)(x).type().to_string(), "bf16[2, 5, 8]");
  EXPECT_EQ(Attention(8, 4, {.kv_heads = 2})(x).type().to_string(), "bf16[2, 5, 8]");
  EXPECT_EQ(MoE(8, {.experts = 3, .hidden = 4})(x).y.type().to_string(), "bf16[2, 5, 8]");
  EXPECT_EQ(TransformerBlock(8, {.heads = 2, .rms_norm = true, .swiglu = true})(x).type().to_string(), "bf16[2, 5, 8]");
  EXPECT_EQ(Embedding(10, 4)(Tensor::from_vector<int64_t>({1, 2, 9}, {3})).type().to_string(), "f32[3, 4]");
}

TEST(Layers, DefaultInitialisationIsPyTorchs) {
  Linear l(64, 64);
  const std::vector<float> w = l.weight.value().to_vector<float>();
  double squares = 0;
  for (float v : w) {
    ASSERT_LE(std::fabs(v), 0.125);
    squares += v * v;
  }
  // Uniform on [-b, b) has variance b²/3; the mean of n squares has standard deviation sqrt(4/45) b²/sqrt(n).
  EXPECT_NEAR(squares / 4096, 0.015625 / 3, 5 * std::sqrt(4.0 / 45) * 0.015625 / 64);
}

TEST(Layers, DropoutOnlyWhileTraining) {
  Dropout drop(0.5);
  const Tensor x = ones({1000});
  int zeros_seen = 0;
  for (float v : drop(x).to_vector<float>()) {
    EXPECT_TRUE(v == 0 || v == 2);
    zeros_seen += v == 0;
  }
  EXPECT_GT(zeros_seen, 400);  // five standard deviations are 79
  EXPECT_LT(zeros_seen, 600);
  drop.eval();
  EXPECT_EQ(drop(x).to_vector<float>(), x.to_vector<float>());
  EXPECT_EQ(error_of([] { Dropout(1.0); }), "Dropout: p is 1; need 0 <= p < 1");
}

TEST(Layers, OptionsThatDoNotFitAreErrors) {
  EXPECT_EQ(error_of([] {
              LayerNorm({4, 0});
            }),
            "LayerNorm: normalized_shape is [4, 0]; need one dim or more, of extents above 0");
  EXPECT_EQ(error_of([] { RMSNorm(Shape{}); }),
            "RMSNorm: normalized_shape is []; need one dim or more, of extents above 0");
  EXPECT_EQ(error_of([] { PReLU(0); }), "PReLU: num_parameters is 0; need 1 or more");
  EXPECT_EQ(error_of([] { Conv2d(1, 1, 3, {.padding_mode = "mirror"}); }),
            "Conv2d: padding_mode is 'mirror'; need \"zeros\", \"reflect\", \"replicate\" or \"circular\"");
  EXPECT_EQ(error_of([] {
              Conv1d(1, 1, 3, {.stride = 2, .padding = "same", .padding_mode = "circular"})(ones({1, 1, 6}));
            }),
            "conv1d: padding \"same\" with stride [2]; need a stride of 1");
  EXPECT_EQ(error_of([] { Embedding(4, 2, {.max_norm = -1}); }),
            "Embedding: max_norm is -1 and norm_type 2; need positive numbers");
  EXPECT_EQ(error_of([] {
              InstanceNorm1d(4, {.track_running_stats = true})(ones({2, 4, 1}));
            }),
            "InstanceNorm1d: x is f32[2, 4, 1]; need one sample or more of 2 or more positions to track statistics");
}

// A row that was read twice is scaled once, and rows that were not read stay.
TEST(Layers, EmbeddingLimitsTheRowsThatItReads) {
  Embedding e(3, 2, {.max_norm = 1.0});
  e.weight.set(Tensor::from_vector<float>({3, 4, 0.5f, 0, 6, 8}, {3, 2}));
  const std::vector<float> y = e(Tensor::from_vector<int64_t>({0, 1, 0}, {3})).to_vector<float>();
  EXPECT_NEAR(y[0], 0.6, 1e-6);  // 1e-7 / 5 below
  EXPECT_EQ(y[4], y[0]);
  EXPECT_EQ(y[2], 0.5f);
  EXPECT_EQ(e.weight.value().to_vector<float>()[4], 6);
  e.eval();  // PyTorch scales in eval() too
  EXPECT_NEAR(e(Tensor::from_vector<int64_t>({2}, {1})).to_vector<float>()[1], 0.8, 1e-6);
}

// Attention written with loops, from the rows of qkv as attention.h orders them.
TEST(Attention, EqualsLoops) {
  constexpr int64_t B = 2, T = 5, D = 12, H = 4, G = 2, R = H / G, d = D / H;
  Random random(2);
  Attention attn(D, H, {.kv_heads = G, .bias = true});
  attn.to(kFloat64);
  const Tensor x = random_tensor(kFloat64, {B, T, D}, random);
  const std::vector<double> qkv = attn.qkv(x).to_vector<double>();
  const int64_t width = d * (H + 2 * G);
  auto row = [&](int64_t b, int64_t t, int64_t g, int64_t part, int64_t i) {
    return qkv[(b * T + t) * width + (g * (R + 2) + part) * d + i];
  };
  std::vector<double> y(B * T * D);
  for (int64_t b = 0; b < B; ++b)
    for (int64_t h = 0; h < H; ++h)
      for (int64_t t = 0; t < T; ++t) {
        std::vector<double> p(t + 1);
        double total = 0;
        for (int64_t s = 0; s <= t; ++s) {
          double score = 0;
          for (int64_t i = 0; i < d; ++i) score += row(b, t, h / R, h % R, i) * row(b, s, h / R, R, i);
          total += p[s] = std::exp(score / std::sqrt(static_cast<double>(d)));
        }
        for (int64_t s = 0; s <= t; ++s)
          for (int64_t i = 0; i < d; ++i) y[(b * T + t) * D + h * d + i] += p[s] / total * row(b, s, h / R, R + 1, i);
      }
  const Tensor want = attn.out(Tensor::from_vector<double>(y, {B, T, D}));
  EXPECT_TRUE(weft::testing::close(attn(x), want, kFloat64, 256));
}

TEST(Attention, AMaskOfTheLayerAndOneOfThePassBothCount) {
  Attention attn(8, 2, {.mask_mod = attention::sliding_window(1)});
  Random random(3);
  const Tensor x = random_tensor(kFloat64, {1, 6, 8}, random);
  const Tensor documents = Tensor::from_vector<int64_t>({0, 0, 0, 1, 1, 1}, {6});
  const Tensor y = attn(x, {.mask_mod = attention::document(documents)});
  // Position 5 sees 4 and 5, position 3 itself only.
  EXPECT_TRUE(weft::testing::close(y.slice(1, 5, 6), attn(x.slice(1, 4, 6)).slice(1, 1, 2), kFloat64, 64));
  EXPECT_TRUE(weft::testing::close(y.slice(1, 3, 4), attn(x.slice(1, 3, 4)), kFloat64, 64));
  // The same mask with blocks computed before.
  const MaskMod all = attention::causal() & attention::sliding_window(1) & attention::document(documents);
  EXPECT_EQ(attn(x, {.block_mask = create_block_mask(all, 1, 1, 6, 6)}).to_vector<double>(), y.to_vector<double>());
}

TEST(Attention, ModsOfTheLayerAndOfThePassFollowEachOther) {
  const auto doubled = [](const Score& s) { return s.value * 2; };
  Attention plain(8, 2), layer(8, 2, {.score_mod = attention::alibi(2)});
  layer.load_state_dict(plain.state_dict());
  Random random(3);
  const Tensor x = random_tensor(kFloat64, {1, 6, 8}, random);
  const ScoreMod both = attention::compose(attention::alibi(2), ScoreMod(doubled));
  EXPECT_EQ(layer(x, {.score_mod = doubled}).to_vector<double>(), plain(x, {.score_mod = both}).to_vector<double>());
  EXPECT_NE(layer(x, {.score_mod = doubled}).to_vector<double>(), layer(x).to_vector<double>());
}

// Mods count positions from the start of the sequence, even if a pass computes only a part.
TEST(Attention, ACacheKeepsPositionsOfMods) {
  Attention attn(8, 2, {.score_mod = attention::alibi(2), .mask_mod = attention::sliding_window(2)});
  Random random(3);
  const Tensor x = random_tensor(kFloat64, {1, 6, 8}, random);
  const Tensor whole = attn(x);
  const KvCache cache({.layers = 1, .kv_heads = 2, .capacity = 9, .head_dim = 4, .dtype = kFloat64});
  int64_t at = 0;
  for (int64_t count : {3, 1, 2}) {
    const Tensor part = attn(x.slice(1, at, at + count), {.cache = &cache});
    EXPECT_TRUE(weft::testing::close(part, whole.slice(1, at, at + count), kFloat64, 64));
    cache.advance(count);
    at += count;
  }
  EXPECT_THROW(attn(x, {.cache = &cache, .block_mask = create_block_mask(attention::causal(), 1, 1, 6, 6)}), Error);
}

TEST(Attention, RotaryDependsOnDistanceOnly) {
  const RopeTables near = rotary_tables(arange(4), 8), far = rotary_tables(arange(4) + 100, 8);
  Random random(4);
  const Tensor q = random_tensor(kFloat64, {4, 8}, random), k = random_tensor(kFloat64, {4, 8}, random);
  const Tensor a = matmul(apply_rope(q, near), apply_rope(k, near).t()),
               b = matmul(apply_rope(q, far), apply_rope(k, far).t());
  const std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>();
  // Angles up to 103 are rounded to f32: half an ulp is 2^-18; eight terms of at most 1 meet two angles each.
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], y[i], 16 * 0x1p-17);
}

TEST(Attention, StretchedRotaryKeepsShortWavesOnly) {
  const Tensor position = Tensor::from_vector<int64_t>({1}, {1});
  const RotaryOptions stretched{
      .theta = 10000, .factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_context = 64};
  const std::vector<double> plain = rotary_tables(position, 16, {}).sin.to_vector<double>();
  const std::vector<double> got = rotary_tables(position, 16, stretched).sin.to_vector<double>();
  EXPECT_EQ(got[0], plain[0]);  // wave of 6.3 positions
  EXPECT_NEAR(got[7], std::sin(std::pow(10000.0, -14.0 / 16) / 8), 1e-10);
}

TEST(Attention, RefusesHeadsThatDoNotFit) {
  EXPECT_EQ(error_of([] { Attention(10, 4); }),
            "Attention: dim 10 is not a multiple of heads 4; need a multiple, or set head_dim");
  EXPECT_EQ(error_of([] { Attention(8, 4, {.kv_heads = 3}); }),
            "Attention: heads 4 is not a multiple of kv_heads 3; need a multiple");
}

// The sum over chosen experts, token by token.
std::vector<double> dense_moe(const MoE& moe, const Tensor& x, const std::vector<std::vector<int64_t>>& chosen,
                              const std::vector<std::vector<double>>& weights) {
  const int64_t T = x.size(0), D = x.size(1), F = moe.w1.shape()[2];
  const Shape in = moe.w1.shape(), out = moe.w2.shape();
  const std::vector<double> v = x.to_vector<double>(), w1 = moe.w1.value().to_vector<double>(),
                            w3 = moe.w3.value().to_vector<double>(), w2 = moe.w2.value().to_vector<double>();
  std::vector<double> y(T * D);
  for (int64_t t = 0; t < T; ++t)
    for (size_t j = 0; j < chosen[t].size(); ++j) {
      const int64_t e = chosen[t][j];
      for (int64_t f = 0; f < F; ++f) {
        double gate = 0, up = 0;
        for (int64_t i = 0; i < D; ++i)
          gate += v[t * D + i] * at(w1, in, {e, i, f}), up += v[t * D + i] * at(w3, in, {e, i, f});
        const double h = gate / (1 + std::exp(-gate)) * up;
        for (int64_t i = 0; i < D; ++i) y[t * D + i] += weights[t][j] * h * at(w2, out, {e, f, i});
      }
    }
  return y;
}

struct Choice {
  std::vector<std::vector<int64_t>> experts;
  std::vector<std::vector<double>> weights;
};

Choice choose(const MoE& moe, const Tensor& x, int64_t k) {
  const std::vector<double> logits = moe.router(x).to_vector<double>();
  const int64_t T = x.size(0), E = static_cast<int64_t>(logits.size()) / T;
  Choice c;
  for (int64_t t = 0; t < T; ++t) {
    std::vector<int64_t> order(E);
    for (int64_t e = 0; e < E; ++e) order[e] = e;
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return logits[t * E + a] > logits[t * E + b]; });
    order.resize(k);
    double total = 0;
    std::vector<double> w;
    for (int64_t e : order) total += std::exp(logits[t * E + e]);
    for (int64_t e : order) w.push_back(std::exp(logits[t * E + e]) / total);
    c.experts.push_back(order);
    c.weights.push_back(w);
  }
  return c;
}

TEST(MoE, DroplessEqualsALoopOverTokens) {
  constexpr int64_t T = 13, D = 6, E = 5;
  MoE moe(D, {.experts = E, .top_k = 2, .hidden = 7, .std = 0.5});
  moe.to(kFloat64);
  Random random(5);
  const Tensor x = random_tensor(kFloat64, {T, D}, random);
  const Choice c = choose(moe, x, 2);
  const std::vector<double> want = dense_moe(moe, x, c.experts, c.weights), got = moe(x).y.to_vector<double>();
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-12);
  std::vector<int64_t> counts(E);
  for (const auto& row : c.experts)
    for (int64_t e : row) ++counts[e];
  EXPECT_EQ(moe(x).counts.to_vector<int64_t>(), counts);
  EXPECT_EQ(moe(x).dropped.item<float>(), 0);
}

TEST(MoE, CapacityDropsLateChoices) {
  constexpr int64_t T = 12, D = 6, E = 4, K = 2;
  MoE moe(D, {.experts = E, .top_k = K, .hidden = 7, .capacity_factor = 0.75, .std = 0.5});
  moe.to(kFloat64);
  Random random(6);
  const Tensor x = random_tensor(kFloat64, {T, D}, random);
  Choice c = choose(moe, x, K);
  const int64_t capacity = 5;  // ceil(0.75 * 12 * 2 / 4)
  std::vector<int64_t> held(E);
  int64_t dropped = 0;
  for (int64_t j = 0; j < K; ++j)
    for (int64_t t = 0; t < T; ++t)
      if (++held[c.experts[t][j]] > capacity) c.weights[t][j] = 0, ++dropped;
  ASSERT_GT(dropped, 0);
  const std::vector<double> want = dense_moe(moe, x, c.experts, c.weights);
  const MoEOut out = moe(x);
  const std::vector<double> got = out.y.to_vector<double>();
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-12);
  EXPECT_FLOAT_EQ(out.dropped.item<float>(), static_cast<float>(dropped) / (T * K));
  moe.eval();  // nothing is dropped when the model is used
  EXPECT_EQ(moe(x).dropped.item<float>(), 0);
}

TEST(ExpertChoice, LawsHaveTheirShares) {
  constexpr int64_t T = 4000, E = 8, K = 2;
  manual_seed(1);
  const Tensor logits = zeros({T, E});
  for (const char* text : {"balanced", "zipf:1.1", "skew:0.9"}) {
    const ExpertChoice choice = ExpertChoice::parse(text);
    const Tensor chosen = choice.choose(logits, K);
    const std::vector<int64_t> counts = sort_by_expert(chosen, E).counts.to_vector<int64_t>();
    const std::vector<double> want = choice.shares(E);
    // Five standard deviations of a share of T K draws; balanced choices have no deviation.
    const double most = choice.law == ExpertChoice::Law::kBalanced ? 1e-12 : 5 * 0.5 / std::sqrt(T * K);
    for (int64_t e = 0; e < E; ++e)
      EXPECT_NEAR(static_cast<double>(counts[e]) / (T * K), want[e], most) << text << " " << e;
  }
  EXPECT_NEAR(ExpertChoice::parse("zipf:1.1").shares(E)[1],
              ExpertChoice::parse("zipf:1.1").shares(E)[0] / std::pow(2, 1.1), 1e-12);
  EXPECT_DOUBLE_EQ(ExpertChoice::parse("skew:0.9").shares(E)[0], 0.9);
  for (const char* bad : {"", "zipf", "zipf:", "zipf:11", "skew:1.1", "skew:-1", "skew:nan", "balanced:1", "skew:0.9x"})
    EXPECT_THROW(ExpertChoice::parse(bad), Error) << bad;
}

TEST(MoE, GivenChoicesKeepTheRoutersWeights) {
  MoE moe(6, {.experts = 4, .top_k = 2, .hidden = 7, .route = "balanced", .std = 0.5});
  moe.to(kFloat64);
  Random random(8);
  const Tensor x = random_tensor(kFloat64, {8, 6}, random);
  const MoEOut out = moe(x);
  EXPECT_EQ(out.counts.to_vector<int64_t>(), (std::vector<int64_t>{4, 4, 4, 4}));
  Choice c = choose(moe, x, 2);
  const std::vector<double> probs = softmax(moe.router(x), -1).to_vector<double>();
  for (int64_t t = 0; t < 8; ++t) {
    const int64_t a = 2 * t % 4, b = (2 * t + 1) % 4;
    const double p = probs[4 * t + a], q = probs[4 * t + b];
    c.experts[t] = {a, b}, c.weights[t] = {p / (p + q), q / (p + q)};
  }
  const std::vector<double> want = dense_moe(moe, x, c.experts, c.weights), got = out.y.to_vector<double>();
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-6);
}

TEST(MoE, EvenLoadCostsTheCoefficient) {
  MoE moe(4, {.experts = 4, .top_k = 2, .hidden = 3, .aux_loss = 0.5});
  moe.router.weight.set(zeros({4, 4}));
  Random random(7);
  // Equal scores give even probabilities, so the loss is its coefficient for any choice.
  EXPECT_FLOAT_EQ(moe(random_tensor(kFloat32, {8, 4}, random)).aux.item<float>(), 0.5f);
}

TEST(MoE, BiasMovesAgainstTheLoadAndOnlyChoosesExperts) {
  MoE moe(
      4,
      {.experts = 4, .top_k = 1, .hidden = 3, .score = "sigmoid", .normalize = false, .bias_rate = 0.25, .std = 0.5});
  moe.update_balance(Tensor::from_vector<int64_t>({8, 0, 4, 4}, {4}));
  EXPECT_EQ(moe.balance.value().to_vector<float>(), (std::vector<float>{-0.25, 0.25, 0, 0}));
  Random random(8);
  const Tensor x = random_tensor(kFloat32, {16, 4}, random);
  moe.balance.set(Tensor::from_vector({0, 0, 100, 0}, {4}));
  const MoEOut out = moe(x);
  EXPECT_EQ(out.counts.to_vector<int64_t>(), (std::vector<int64_t>{0, 0, 16, 0}));
  // The weight is the plain score: below 1, although the choice was made at above 100.
  const Tensor logits = moe.router(x);
  const Tensor score = sigmoid(logits.slice(1, 2, 3));
  const Tensor w1 = select(moe.w1, 0, 2), w3 = select(moe.w3, 0, 2), w2 = select(moe.w2, 0, 2);
  const Tensor gate = matmul(x, w1), want = matmul(gate * sigmoid(gate) * matmul(x, w3), w2) * score;
  EXPECT_TRUE(weft::testing::close(out.y, want, kFloat32, 64));
}

// Steps of choice, load and bias (Wang et al. 2024) beside a loop in f64. The rate is a power of two, so that biases
// are exact.
TEST(MoE, BiasBalancesAsTheLoopInF64) {
  constexpr int64_t T = 64, D = 8, E = 8, K = 2, kSteps = 40;
  constexpr double kRate = 1. / 64;
  MoE moe(D, {.experts = E, .top_k = K, .hidden = 3, .score = "sigmoid", .bias_rate = kRate, .std = 0.5});
  moe.to(kFloat64);
  Random random(11);
  const Tensor x = random_tensor(kFloat64, {T, D}, random) + 0.5;  // a direction that all tokens have: uneven load
  const std::vector<double> logits = moe.router(x).to_vector<double>();
  std::vector<double> bias(E);
  std::vector<int64_t> first, last;
  for (int64_t step = 0; step < kSteps; ++step) {
    std::vector<int64_t> counts(E);
    for (int64_t t = 0; t < T; ++t) {
      std::vector<int64_t> order(E);
      std::iota(order.begin(), order.end(), 0);
      const auto biased = [&](int64_t e) { return 1 / (1 + std::exp(-logits[t * E + e])) + bias[e]; };
      std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return biased(a) > biased(b); });
      for (int64_t j = 0; j < K; ++j) ++counts[order[j]];
    }
    const MoEOut out = moe(x);
    EXPECT_EQ(out.counts.to_vector<int64_t>(), counts) << step;
    moe.update_balance(out.counts);
    for (int64_t e = 0; e < E; ++e) bias[e] += counts[e] * E < T * K ? kRate : counts[e] * E > T * K ? -kRate : 0;
    EXPECT_EQ(moe.balance.value().to_vector<double>(), bias) << step;
    (step == 0 ? first : last) = counts;
  }
  EXPECT_GT(*std::max_element(first.begin(), first.end()), 2 * T * K / E);
  EXPECT_LT(*std::max_element(last.begin(), last.end()), 1.5 * T * K / E);
}

TEST(MoE, SharedExpertServesEveryToken) {
  MoE moe(4, {.experts = 2, .top_k = 1, .hidden = 3, .shared_hidden = 5, .std = 0.5});
  Random random(9);
  const Tensor x = random_tensor(kFloat32, {6, 4}, random);
  moe.w2.set(zeros({2, 3, 4}));
  EXPECT_EQ(moe(x).y.to_vector<float>(), (*moe.shared)(x).to_vector<float>());
}

TEST(MoE, EveryParameterGetsAGradient) {
  MoE moe(6, {.experts = 3, .top_k = 2, .hidden = 4, .shared_hidden = 4, .z_loss = 0.01, .std = 0.5});
  Random random(10);
  const MoEOut out = moe(random_tensor(kFloat32, {20, 6}, random));
  const std::vector<Parameter> parameters = moe.parameters();
  const std::vector<Tensor> grads = grad(mean(square(out.y)) + out.aux, parameters);
  for (size_t i = 0; i < grads.size(); ++i) EXPECT_GT(amax(abs(grads[i])).item<float>(), 0) << parameters[i].name();
}

}  // namespace
}  // namespace weft::nn
