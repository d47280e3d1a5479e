// Llama 70B over 4,000 devices, planned without them: its volumes are those of the formulas.
#include <gtest/gtest.h>

#include <chrono>

#include "distributed/launch/compile.h"
#include "distributed/plan/words.h"
#include "models/llama/model.h"
#include "weft.h"

namespace weft::dist {
namespace {

struct Planned {
  PlanReport report;
  double seconds = 0;
};

Planned plan_llama(const llama::Config& config, const std::string& mesh, int64_t batch, int64_t length) {
  const auto start = std::chrono::steady_clock::now();
  llama::Model model(config);
  model.to(kBFloat16);
  optim::AdamW opt(optim::decay_groups(model.parameters(), 0.1), {.lr = 1e-3});
  CompileOptions o;
  o.mesh = Mesh::parse(mesh);
  o.machine = "h100";
  const Tensor x = zeros({batch, length}, {.dtype = kInt32});
  Planned p;
  p.report = plan(
      [&](Tensor tokens, Tensor targets) {
        Tensor loss = model.loss(tokens, targets).loss;
        auto [g, norm] = optim::clip_grad_norm(grad(loss, opt.parameters()), 1.0);
        opt.step(g);
        return std::vector<Tensor>{loss, norm};
      },
      o, x, x);
  p.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return p;
}

TEST(LlamaPlan, SeventyBillionOn4000Devices) {
  const Planned p = plan_llama(llama::preset("llama-70b"), "fsdp500,tp8", 500, 8192);
  printf("%s\nplanned in %.2f s\n", p.report.to_string().c_str(), p.seconds);
}

}  // namespace
}  // namespace weft::dist
