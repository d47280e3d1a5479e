// ALiBi (Press et al. 2022): scores that fall with distance replace position embeddings. The model is trained on
// sequences of 128 tokens and works on sequences of 512; the same model with rotary positions gets worse there.
//   ./bazelw run //models/examples:alibi
#include <cstdio>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "models/data/dataset.h"
#include "models/data/loader.h"
#include "models/examples/small_lm.h"

ABSL_FLAG(int, steps, 300, "optimiser steps of each of the two models");

using namespace weft;

namespace {

constexpr int64_t kTrained = 128, kLongest = 512, kHeads = 4, kDim = 128;

struct ComparedModel {
  const char* name;
  bool alibi;
  examples::SmallLm lm;
  ComparedModel(const char* label, bool with_alibi)
      : name(label),
        alibi(with_alibi),
        lm(256, kDim, 4,
           {.heads = kHeads,
            .rms_norm = true,
            .bias = false,
            .score_mod = alibi ? attention::alibi(kHeads) : ScoreMod()}) {}
  Tensor loss(const Tensor& tokens, const Tensor& targets) const {
    nn::AttentionContext context;
    if (!alibi) context.rope = nn::rotary_tables(arange(tokens.size(1)), kDim / kHeads);
    return cross_entropy(lm(tokens, context), targets);
  }
};

std::pair<Tensor, Tensor> tensors(const data::Batch& b) {
  const Shape shape{b.rows, b.seq_len};
  return {Tensor::from_vector(b.tokens, shape), Tensor::from_vector(b.targets, shape)};
}

void train(const ComparedModel& model, const data::TokenDataset& text, int steps) {
  optim::AdamW opt(model.lm.parameters(), {.lr = 2e-3});
  auto step = compile([&](Tensor x, Tensor y) {
    Tensor loss = model.loss(x, y);
    opt.step(optim::clip_grad_norm(grad(loss, opt.parameters()), 1.0).grads);
    return loss;
  });
  data::ShuffledLoader loader(text, {.batch_size = 16, .seq_len = kTrained, .seed = 1});
  for (int i = 0; i < steps; ++i) {
    auto [x, y] = tensors(loader.next());
    const double loss = step(x, y).item<float>();
    if (i == 0 || (i + 1) % 100 == 0) std::printf("%-6s  step %4d  loss %.3f\n", model.name, i + 1, loss);
  }
}

/// Mean loss of held-out text in sequences of `length` tokens.
double score(const ComparedModel& model, const data::TokenDataset& text, int64_t length) {
  const data::SequentialLoader loader(text, {.batch_size = 8192 / length, .seq_len = length, .what = "validation"});
  double sum = 0;
  constexpr int64_t kBatches = 4;
  for (int64_t i = 0; i < kBatches; ++i) {
    auto [x, y] = tensors(loader.batch(i));
    sum += model.loss(x, y).item<float>();
  }
  return sum / kBatches;
}

}  // namespace

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  manual_seed(0);
  const data::ByteTokenizer bytes;
  const auto [text, held_out] = data::open_data("shakespeare", bytes).split(kLongest);
  const ComparedModel models[] = {{"alibi", true}, {"rotary", false}};
  for (const ComparedModel& m : models) train(m, text, absl::GetFlag(FLAGS_steps));
  std::printf("\nloss of unseen text in rows of  128     256     512\n");
  for (const ComparedModel& m : models)
    std::printf("%-6s                        %.3f   %.3f   %.3f\n", m.name, score(m, held_out, 128),
                score(m, held_out, 256), score(m, held_out, 512));
}
