// A character model with an LSTM (Hochreiter and Schmidhuber 1997, Karpathy 2015), trained on Shakespeare.
//   ./bazelw run //models/examples:char_lstm
#include <cstdio>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "models/data/corpus.h"
#include "weft.h"

ABSL_FLAG(int, steps, 400, "optimiser steps");
ABSL_FLAG(uint64_t, seed, 0, "seed of the initial weights, the order of the text and the sample");

using namespace weft;

namespace {

constexpr int64_t kLength = 64, kBatch = 32, kHidden = 192;

/// Pieces of a text of kLength characters, each with the characters that follow.
struct Pieces {
  Tensor text;  // i64 [characters]
  int64_t size() const { return (text.size(0) - 1) / kLength; }
  std::array<Tensor, 2> get(int64_t i) const {
    const int64_t at = i * kLength;
    return {text.slice(0, at, at + kLength), text.slice(0, at + 1, at + 1 + kLength)};
  }
};

struct CharLstm : nn::Module {
  nn::Embedding embed;
  nn::LSTM lstm;
  nn::Linear head;
  explicit CharLstm(int64_t vocab)
      : embed(vocab, 64), lstm(64, kHidden, {.num_layers = 2, .batch_first = true}), head(kHidden, vocab) {
    register_module("embed", embed);
    register_module("lstm", lstm);
    register_module("head", head);
  }
  struct CharLstmOutput {
    Tensor logits;
    nn::LSTM::State state;
  };
  /// tokens [B, T] -> logits [B, T, vocab].
  CharLstmOutput operator()(const Tensor& tokens, const nn::LSTM::State& state = {}) const {
    const auto [h, last] = lstm(embed(tokens), state);
    return {head(h), last};
  }
};

}  // namespace

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const uint64_t seed = absl::GetFlag(FLAGS_seed);
  manual_seed(seed);
  const std::string text = data::embedded_corpus();
  std::string vocab;                    // the character of each token
  std::vector<int64_t> token(256, -1);  // token of each character
  std::vector<int64_t> tokens;
  for (unsigned char c : text) {
    if (token[c] < 0) token[c] = static_cast<int64_t>(vocab.size()), vocab += static_cast<char>(c);
    tokens.push_back(token[c]);
  }
  const int64_t n = static_cast<int64_t>(tokens.size()), held_out = kBatch * kLength * 8 + 1;
  const Tensor all = Tensor::from_vector(tokens, {n});
  data::DataLoader train_loader(Pieces{all.slice(0, 0, n - held_out)},
                                {.batch_size = kBatch, .shuffle = true, .drop_last = true, .seed = seed});
  data::DataLoader test_loader(Pieces{all.slice(0, n - held_out, n)}, {.batch_size = kBatch});

  CharLstm model(static_cast<int64_t>(vocab.size()));
  optim::AdamW opt(model.parameters(), {.lr = 4e-3});
  auto train_step = compile([&](Tensor x, Tensor y) {
    Tensor loss = cross_entropy(model(x).logits, y);
    opt.step(optim::clip_grad_norm(grad(loss, opt.parameters()), 1.0).grads);
    return loss;
  });
  auto test_step = compile([&](Tensor x, Tensor y) {
    NoGrad guard;
    return cross_entropy(model(x).logits, y);
  });
  auto next = compile([&](Tensor x, nn::LSTM::State state) {
    NoGrad guard;
    return model(x, state);
  });
  auto held_out_loss = [&] {
    double sum = 0;
    for (const auto& [x, y] : test_loader) sum += test_step(x, y).item();
    return sum / static_cast<double>(test_loader.size());
  };

  const int steps = absl::GetFlag(FLAGS_steps);
  std::printf("%zu characters, %lld parameters\n step   loss  held out\n", vocab.size(),
              static_cast<long long>(model.num_parameters()));
  for (int i = 0; i < steps;) {
    for (const auto& [x, y] : train_loader) {
      const Tensor loss = train_step(x, y);
      if (++i % 50 == 0 || i == 1) std::printf("%5d  %5.3f     %5.3f\n", i, loss.item(), held_out_loss());
      if (i == steps) break;
    }
  }

  std::string sample = "\n";
  nn::LSTM::State state{zeros({2, 1, kHidden}), zeros({2, 1, kHidden})};
  while (sample.size() < 300) {
    const int64_t last = token[static_cast<unsigned char>(sample.back())];
    const auto out = next(Tensor::from_vector(std::vector<int64_t>{last}, {1, 1}), state);
    state = out.state;
    sample += vocab[multinomial(softmax(out.logits[0][0] / 0.8, 0), 1).item<int64_t>()];
  }
  std::printf("%s\nheld-out loss: %.3f nats per character\n", sample.c_str(), held_out_loss());
}
