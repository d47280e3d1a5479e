#include "tools/reached.h"

#include <algorithm>
#include <chrono>

#include "distributed/plan/estimate.h"
#include "models/gpt/model.h"
#include "weft.h"

namespace weft::tools {

double reached_share(const Machine& machine) {
  constexpr int kSteps = 8;
  constexpr int64_t kBatch = 4, kTime = 128, kVocab = 256;
  gpt::Model model({.vocab = kVocab, .context = kTime, .layers = 2, .heads = 4, .dim = 256, .ffn = 1024});
  optim::AdamW opt(model.parameters(), {.lr = 1e-3});
  const auto step = compile([&](Tensor tokens, Tensor targets) {
    const Tensor loss = model.loss(tokens, targets).loss;
    opt.step(optim::clip_grad_norm(grad(loss, opt.parameters()), 1.0).grads);
    return loss;
  });
  const Tensor tokens = randint(0, kVocab, {kBatch, kTime}, {.dtype = kInt32});
  step(tokens, tokens);
  double least = 1e30;
  for (int i = 0; i < kSteps; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    step(tokens, tokens).item<float>();
    least = std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  Machine rates = machine;
  rates.reached = 1;
  const double predicted = dist::estimate({}, step.graph("joint"), {}, rates, false).compute_seconds;
  return std::min(1.0, predicted / least);
}

}  // namespace weft::tools
