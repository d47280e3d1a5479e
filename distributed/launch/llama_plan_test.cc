// A plan of Llama 70B for 4,000 devices, made without devices: its volumes agree with the formulas.
#include <gtest/gtest.h>

#include <chrono>

#include "distributed/launch/compile.h"
#include "models/llama/model.h"
#include "weft.h"

namespace weft::dist {
namespace {

struct Planned {
  PlanReport report;
  double seconds = 0;
};

Planned plan_llama(const llama::Config& config, const std::string& mesh, int64_t batch, int64_t length,
                   int64_t microbatches = 1, const Plan& options = {}) {
  const auto start = std::chrono::steady_clock::now();
  llama::Model model(config);
  model.to(kBFloat16);
  optim::AdamW opt(optim::decay_groups(model.parameters(), 0.1), {.lr = 1e-3});
  CompileOptions o;
  o.mesh = Mesh::parse(mesh);
  o.machine = "h100-sxm";
  o.plan = options;
  o.communication = std::make_shared<CommunicationOptions>(
      CommunicationOptions{.async_tp = AsyncTp::kOff});  // keep gathers and scatters
  const Tensor x = zeros({batch, length}, {.dtype = kInt32});
  Planned p;
  p.report = plan(
      [&](Tensor tokens, Tensor targets) {
        auto [loss, sums] = accumulate(microbatches, std::pair{tokens, targets}, [&](Tensor x, Tensor y) {
          const Tensor loss = model.loss(x, y).loss;
          Gradients g = grad(loss, opt.parameters());
          return std::pair{loss.detach(), std::move(g)};
        });
        auto [g, norm] = optim::clip_grad_norm(sums, 1.0);
        opt.step(g);
        return std::vector<Tensor>{loss, norm};
      },
      o, x, x);
  p.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return p;
}

// Sums of a rank's bytes over one mesh dimension.
double bytes_of(const PlanReport& p, Phase phase, Subject subject, Collective kind, const std::string& axes) {
  double sum = 0;
  for (const PlannedCollective& c : p.collectives())
    if (c.phase == phase && c.subject == subject && c.kind == kind && c.axes == axes)
      sum += static_cast<double>(c.bytes);
  return sum;
}

TEST(LlamaPlan, SeventyBillionOn4000Devices) {
  const llama::Config config = llama::preset("llama-70b");
  const int64_t length = 8192, tp = 8;
  const Planned planned = plan_llama(config, "fsdp500,tp8", 500, length);
  const PlanReport& p = planned.report;
  printf("%s\nplanned in %.2f s\n", p.to_string().c_str(), planned.seconds);

  // The matrices are embedding and head, and in each layer queries, keys, values, output and three in the mlp.
  const double d = static_cast<double>(config.dim), head = d / static_cast<double>(config.heads);
  const double layer =
      d * (d + 2 * static_cast<double>(config.kv_heads) * head) + d * d + 3 * d * static_cast<double>(config.ffn);
  const double table = static_cast<double>(config.vocab) * d, layers = static_cast<double>(config.layers);
  const double matrices = layers * layer + 2 * table;
  EXPECT_NEAR(matrices, 70.55e9, 0.01e9);

  // Over fsdp, each parameter of a tp rank moves 2 bytes in the gather of forward, 2 in the gather of backward, and 2
  // in the scatter of gradients: 3 x 2 x 70e9 bytes / tp 8. Backward does not read the embedding table. Norms (161 x
  // 8192) are gathered in 4 bytes, on every rank of tp.
  const double norms = (2 * layers + 1) * d;
  EXPECT_EQ(bytes_of(p, Phase::kForward, Subject::kParameter, Collective::kAllGather, "fsdp"),
            2 * matrices / tp + 4 * norms);
  EXPECT_EQ(bytes_of(p, Phase::kBackward, Subject::kParameter, Collective::kAllGather, "fsdp"),
            2 * (matrices - table) / tp);
  EXPECT_EQ(bytes_of(p, Phase::kBackward, Subject::kGradient, Collective::kReduceScatter, "fsdp"),
            2 * matrices / tp + 4 * norms);
  EXPECT_NEAR(tp * (2 * matrices / tp * 3) / 200e9, 2.1, 0.02);  // seconds at 200e9 bytes a second, whatever tp

  // Over tp, in units of the residual stream of a rank's sequence: each layer has two gathers and two scatters in
  // forward, the same in backward, and backward gathers again for column-parallel products. The embedding and the head
  // add one each.
  const double stream = static_cast<double>(length) * d * 2;
  EXPECT_EQ(bytes_of(p, Phase::kForward, Subject::kActivation, Collective::kAllGather, "tp"),
            (2 * layers + 1) * stream);
  EXPECT_EQ(bytes_of(p, Phase::kBackward, Subject::kActivation, Collective::kAllGather, "tp"),
            (4 * layers + 2) * stream);
  EXPECT_EQ(bytes_of(p, Phase::kBackward, Subject::kActivation, Collective::kReduceScatter, "tp"),
            (2 * layers + 1) * stream);
  EXPECT_EQ(p.mesh().size(), 4000);
}

TEST(LlamaPlan, SeventyBillionInAPipelineOn512Devices) {
  Plan options;
  options.pipeline = "interleaved_1f1b:4";
  const Planned planned = plan_llama(llama::preset("llama-70b"), "pp8,fsdp8,tp8", 512, 4096, 64, options);
  const PlanReport& p = planned.report;
  printf("%s\nplanned in %.2f s\n", p.to_string().c_str(), planned.seconds);
  EXPECT_EQ(p.mesh().size(), 512);
}

}  // namespace
}  // namespace weft::dist
