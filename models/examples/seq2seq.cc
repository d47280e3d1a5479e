// An encoder-decoder transformer (Vaswani et al. 2017, Raffel et al. 2020) that sorts strings of digits. It writes the
// answer token by token, with greedy decoding.
//   ./bazelw run //models/examples:seq2seq
#include <algorithm>
#include <cstdio>
#include <random>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "weft.h"

ABSL_FLAG(int, steps, 500, "optimiser steps");
ABSL_FLAG(uint64_t, seed, 0, "seed of the initial weights and the order of the strings");

using namespace weft;

namespace {

constexpr int64_t kLongest = 10, kLength = kLongest + 1;           // the answer ends with kEnd
constexpr int64_t kPad = 10, kStart = 11, kEnd = 12, kVocab = 13;  // after the digits
constexpr int64_t kDim = 64, kHeads = 4, kBatch = 64, kHeldOut = 512;

/// String i is a function of first + i: {string, answer}, each [kLength] and padded.
struct Strings {
  int64_t first, count;
  int64_t size() const { return count; }
  std::array<Tensor, 2> get(int64_t i) const {
    std::mt19937_64 random(static_cast<uint64_t>(first + i));
    std::vector<int64_t> digits(4 + random() % (kLongest - 3));
    for (int64_t& d : digits) d = static_cast<int64_t>(random() % 10);
    std::vector<int64_t> sorted = digits;
    std::sort(sorted.begin(), sorted.end());
    sorted.push_back(kEnd);
    digits.resize(kLength, kPad);
    sorted.resize(kLength, kPad);
    return {Tensor::from_vector(digits, {kLength}), Tensor::from_vector(sorted, {kLength})};
  }
};

struct Seq2Seq : nn::Module {
  nn::Embedding tokens, positions;
  nn::ModuleList<nn::TransformerEncoderLayer> encoder;
  nn::ModuleList<nn::TransformerDecoderLayer> decoder;
  nn::LayerNorm encoder_norm, decoder_norm;
  nn::Linear head;
  Seq2Seq()
      : tokens(kVocab, kDim),
        positions(kLength, kDim, {.std = 0.1}),
        encoder_norm(kDim),
        decoder_norm(kDim),
        head(kDim, kVocab) {
    const nn::TransformerLayerOptions options{
        .dim_feedforward = 4 * kDim, .dropout = 0, .batch_first = true, .norm_first = true};
    for (int i = 0; i < 2; ++i) {
      encoder.push_back({kDim, kHeads, options});
      decoder.push_back({kDim, kHeads, options});
    }
    register_module("tokens", tokens);
    register_module("positions", positions);
    register_module("encoder", encoder);
    register_module("decoder", decoder);
    register_module("encoder_norm", encoder_norm);
    register_module("decoder_norm", decoder_norm);
    register_module("head", head);
  }
  Tensor embed(const Tensor& x) const { return tokens(x) + positions(arange(x.size(1))); }
  /// source [B, S] -> memory [B, S, kDim].
  Tensor encode(const Tensor& source) const {
    Tensor x = embed(source);
    for (const auto& layer : encoder) x = layer(x, {.key_padding_mask = source == kPad});
    return encoder_norm(x);
  }
  /// Logits [B, T, kVocab] of each token of an answer [B, T], given the tokens before it.
  Tensor decode(const Tensor& answer, const Tensor& memory, const Tensor& source) const {
    const int64_t length = answer.size(1);
    Tensor x = embed(cat({full({answer.size(0), 1}, kStart, {.dtype = kInt64}), answer.slice(1, 0, length - 1)}, 1));
    for (const auto& layer : decoder) x = layer(x, memory, {.is_causal = true}, {.key_padding_mask = source == kPad});
    return head(decoder_norm(x));
  }
};

/// The digits before the end.
std::string text(const Tensor& row) {
  std::string s;
  for (int64_t t : row.to_vector<int64_t>()) {
    if (t >= 10) break;
    s += static_cast<char>('0' + t);
  }
  return s;
}

}  // namespace

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const uint64_t seed = absl::GetFlag(FLAGS_seed);
  manual_seed(seed);
  data::DataLoader train_loader(Strings{0, 100000},
                                {.batch_size = kBatch, .shuffle = true, .drop_last = true, .seed = seed});
  data::DataLoader test_loader(Strings{100000, kHeldOut}, {.batch_size = 256});

  Seq2Seq model;
  const int steps = absl::GetFlag(FLAGS_steps);
  optim::AdamW opt(model.parameters(), {.lr = 3e-3});
  optim::Scheduler schedule(opt, optim::CosineAnnealingLR{.base = 3e-3, .t_max = std::max(steps, 1)});
  auto train_step = compile([&](Tensor x, Tensor y) {
    Tensor loss = cross_entropy(model.decode(y, model.encode(x), x), y, {.ignore_index = kPad});
    opt.step(optim::clip_grad_norm(grad(loss, opt.parameters()), 1.0).grads);
    return loss;
  });
  auto encode = compile([&](Tensor x) {
    NoGrad guard;
    return model.encode(x);
  });
  auto extend = compile([&](Tensor answer, Tensor memory, Tensor x, Tensor i) {  // writes token i
    NoGrad guard;
    return where(arange(kLength) == i, model.decode(answer, memory, x).argmax(2), answer);
  });
  auto answer_to = [&](const Tensor& x) {
    const Tensor memory = encode(x);
    Tensor answer = full({x.size(0), kLength}, kPad, {.dtype = kInt64});
    for (int64_t i = 0; i < kLength; ++i) answer = extend(answer, memory, x, i);
    return answer;
  };
  auto accuracy = [&] {  // share of correct held-out strings
    model.eval();
    double right = 0;
    for (const auto& [x, y] : test_loader) right += all((answer_to(x) == y) | (y == kPad), {1}).sum().item();
    model.train();
    return 100 * right / static_cast<double>(kHeldOut);
  };

  std::printf("%lld parameters\n step    loss  sorted\n", static_cast<long long>(model.num_parameters()));
  for (int i = 0; i < steps;) {
    for (const auto& [x, y] : train_loader) {
      const Tensor loss = train_step(x, y);
      schedule.step();
      if (++i % 100 == 0 || i == 1) std::printf("%5d  %6.4f  %4.1f %%\n", i, loss.item(), accuracy());
      if (i == steps) break;
    }
  }
  for (int64_t i = 0; i < 4; ++i) {
    const Tensor x = test_loader.dataset().get(i)[0].unsqueeze(0);
    std::printf("%-10s -> %s\n", text(x).c_str(), text(answer_to(x)).c_str());
  }
  std::printf("held-out strings sorted without a mistake: %.1f %%\n", accuracy());
}
