// A prefix-LM (Raffel et al. 2020) that learns to sort: up to 12 different letters, then '|', then the same letters in
// order. The letters before '|' attend to each other in both directions; later letters attend to all tokens before
// them. Each row has its own prefix length.
//   ./bazelw run //models/examples:prefix_lm
#include <algorithm>
#include <cstdio>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "models/examples/small_lm.h"

ABSL_FLAG(int, steps, 400, "optimiser steps");

using namespace weft;

namespace {

constexpr int64_t kRows = 64, kMost = 12, kLength = 2 * kMost, kBar = 26, kVocab = 27, kHeadDim = 32;

struct PrefixBatch {
  Tensor tokens, targets;  // [kRows, kLength]; only letters after '|' are targets
  Tensor prefix;           // [kRows]: number of letters, plus one for '|'
};

PrefixBatch make_batch() {
  const std::vector<int64_t> counts = randint(3, kMost + 1, {kRows}).to_vector<int64_t>();
  const std::vector<int64_t> letters =
      argsort(rand({kRows, kBar}), 1).to_vector<int64_t>();  // random permutations of the alphabet
  std::vector<int64_t> tokens(kRows * kLength, kBar), targets(kRows * kLength, -100), prefix(kRows);
  for (int64_t r = 0; r < kRows; ++r) {
    const int64_t n = counts[r];
    std::vector<int64_t> row(&letters[r * kBar], &letters[r * kBar] + n);
    int64_t* to = &tokens[r * kLength];
    std::copy(row.begin(), row.end(), to);
    std::sort(row.begin(), row.end());
    std::copy(row.begin(), row.end() - 1, to + n + 1);
    std::copy(row.begin(), row.end(), &targets[r * kLength + n]);
    prefix[r] = n + 1;
  }
  const Shape shape{kRows, kLength};
  return {Tensor::from_vector(tokens, shape), Tensor::from_vector(targets, shape),
          Tensor::from_vector(prefix, {kRows})};
}

}  // namespace

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  manual_seed(0);
  // Each call passes its prefix lengths. The prefix_lm mask is causal outside the prefix; layers are not causal.
  examples::SmallLm model(kVocab, 64, 3, {.heads = 2, .rms_norm = true, .bias = false, .causal = false});
  optim::AdamW opt(model.parameters(), {.lr = 3e-3});
  auto logits = [&](const PrefixBatch& b) {
    return model(b.tokens,
                 {.rope = nn::rotary_tables(arange(kLength), kHeadDim), .mask_mod = attention::prefix_lm(b.prefix)});
  };
  auto step = compile([&](PrefixBatch b) {
    Tensor loss = cross_entropy(logits(b), b.targets);
    opt.step(optim::clip_grad_norm(grad(loss, opt.parameters()), 1.0).grads);
    return loss;
  });
  const int steps = absl::GetFlag(FLAGS_steps);
  for (int i = 0; i < steps; ++i) {
    const double loss = step(make_batch()).item<float>();
    if (i == 0 || (i + 1) % 50 == 0) std::printf("step %4d  loss %.4f\n", i + 1, loss);
  }
  const PrefixBatch b = make_batch();
  const Tensor right = logical_or(eq(argmax(logits(b), -1), b.targets), eq(b.targets, -100));
  const double sorted = prod(right.to(kFloat32), 1).mean().item<float>();
  std::printf("rows sorted without a mistake: %.0f %%\n", 100 * sorted);
}
