#include "tools/doctor/reached.h"

#include <algorithm>
#include <chrono>

#include "compiler/cost/machine/best_of_runs.h"
#include "compiler/cost/node_seconds.h"
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

std::vector<ProductShare> attention_shares(const Machine& machine) {
  constexpr int64_t kBatch = 8, kHeads = 4, kTime = 256;
  constexpr int kRuns = 6;
  Machine rates = machine;
  rates.reached = 1;
  rates.attention_shares.clear();
  std::vector<ProductShare> shares;
  for (const int64_t head : {16, 32, 64, 128}) {
    const auto share = [&](DType t) {
      const Shape shape{kBatch, kHeads, kTime, head};
      const Tensor q = randn(shape).to(t), k = randn(shape).to(t), v = randn(shape).to(t);
      const auto step = compile([](Tensor q, Tensor k, Tensor v) {
        const std::vector<Tensor> in{q.requires_grad(), k.requires_grad(), v.requires_grad()};
        return grad(sum(scaled_dot_product_attention(in[0], in[1], in[2], {.is_causal = true})), in);
      });
      step(q, k, v);
      const double seconds = internal::best_seconds(kRuns, [&] { step(q, k, v); });
      double products = 0, others = 0;
      const Graph& g = step.graph("joint");
      for (int32_t id = 0; id < g.size(); ++id) {
        const Node& n = g.node(id);
        if (!product_shape(g, n).head) continue;
        const ResourceSeconds r = resource_seconds(rates, op_cost(g, n));
        products += r.products;
        others += std::max(r.memory, r.arithmetic) + rates.launch;
      }
      return std::min(1.0, products / std::max(seconds - others, products));
    };
    shares.push_back({static_cast<double>(head), share(kFloat32), share(kBFloat16)});
  }
  return shares;
}

}  // namespace weft::tools
