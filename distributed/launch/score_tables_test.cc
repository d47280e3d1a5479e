// Attention with tables of a score_mod on a mesh trains as on one device. Tables are parameters, or constants, for
// which backward computes no gradients.
#include <gtest/gtest.h>

#include <cmath>

#include "distributed/launch/compile.h"
#include "ops/attention/record.h"
#include "weft.h"

namespace weft::dist {
namespace {

constexpr int64_t kDim = 16, kTime = 24, kBatch = 4, kHeads = 4;

struct Biased : nn::Module {
  Parameter slopes;
  nn::Attention attn;
  Biased(bool learned) : slopes(attention::alibi_slopes(kHeads), "slopes"), attn(kDim, kHeads, {.kv_heads = 2}) {
    if (learned) register_parameter("slopes", slopes);
    register_module("attn", attn);
  }
};

struct Trained {
  std::vector<double> losses, weights;
  std::vector<size_t> results;  // numbers of results of each attention_backward
};

Trained train(bool learned, const std::string& mesh, const char* cp) {
  manual_seed(3);
  Biased model(learned);
  optim::SGD opt(model.parameters(), {.lr = 0.1});
  auto fn = [&](Tensor x, Tensor y) {
    const Tensor slopes = learned ? model.slopes.value() : model.slopes.value().detach();
    const nn::AttentionContext context{.score_mod = attention::alibi(slopes), .mask_mod = attention::causal()};
    const Tensor loss = mse_loss(model.attn(x, context, 0), y);
    opt.step(grad(loss, opt.parameters()));
    return std::vector<Tensor>{loss};
  };
  Plan plan;
  plan.cp = cp;
  auto step = dist::compile(fn, {.mesh = Mesh::parse(mesh), .plan = plan});
  Trained r;
  manual_seed(5);
  for (int i = 0; i < 3; ++i) {
    const Tensor x = randn({kBatch, kTime, kDim});
    r.losses.push_back(step(x, roll(x, 1, 1))[0].item<double>());
  }
  const Graph& joint = step.graph("joint");
  for (int32_t id = 0; id < joint.size(); ++id)
    if (const Node& n = joint.node(id); n.op == &attention_backward_op) r.results.push_back(n.outputs.size());
  for (auto& [name, p] : model.named_parameters())
    for (double w : p.value().to_vector<double>()) r.weights.push_back(w);
  return r;
}

void expect_close(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 2e-5 * (1 + std::abs(want[i]))) << i;
}

TEST(ScoreTables, TrainAsOnOneDevice) {
  for (const bool learned : {false, true}) {
    const Trained want = train(learned, "", "allgather");
    EXPECT_EQ(want.results, std::vector<size_t>{learned ? 4u : 3u});
    for (const auto& [mesh, cp] : {std::pair{"dp2", "allgather"},
                                   {"tp2", "allgather"},
                                   {"dp2,tp2", "allgather"},
                                   {"cp2", "allgather"},
                                   {"cp2", "ring"},
                                   {"cp2", "ulysses"},
                                   {"cp2,tp2", "ring"}}) {
      SCOPED_TRACE(str_cat(mesh, " ", cp, learned ? ", learned" : ""));
      const Trained got = train(learned, mesh, cp);
      expect_close(got.losses, want.losses);
      expect_close(got.weights, want.weights);
    }
  }
}

}  // namespace
}  // namespace weft::dist
