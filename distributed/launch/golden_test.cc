// The collectives of one dense transformer block and its loss over dp, cp and tp with sharded parameters, one by one.
#include <gtest/gtest.h>

#include <map>

#include "distributed/launch/compile.h"
#include "distributed/plan/words.h"
#include "models/gpt/model.h"
#include "weft.h"

namespace weft::dist {
namespace {

using Counts = std::map<std::string, int64_t>;

PlanReport plan_of(int64_t layers, const std::string& mesh, int zero) {
  gpt::Config config;
  config.vocab = 48;
  config.context = 16;
  config.layers = layers;
  config.heads = 4;
  config.dim = 32;
  config.ffn = 64;
  manual_seed(7);
  gpt::Model model(config);
  optim::AdamW opt(optim::decay_groups(model.parameters(), 0.1), {.lr = 1e-3});
  CompileOptions o;
  o.mesh = Mesh::parse(mesh);
  o.plan.zero = zero;
  o.communication.bucket = o.communication.overlap = false;
  const Tensor x = zeros({4, 16}, {.dtype = kInt32});
  return plan(
      [&](Tensor tokens, Tensor targets) {
        Tensor loss = model.loss(tokens, targets).loss;
        auto [g, norm] = optim::clip_grad_norm(grad(loss, opt.parameters()), 1.0);
        opt.step(g);
        return std::vector<Tensor>{loss, norm};
      },
      o, x, x);
}

// "forward activations all-gather@tp": how many.
Counts counts_of(const PlanReport& p, bool layers_only = false) {
  Counts n;
  for (const PlannedCollective& c : p.collectives())
    if (!layers_only || c.what.find("blocks.") != c.what.npos) ++n[cat(to_string(c.phase), " ", to_string(c.subject), " ", title(c.kind), "@", c.axes)];
  return n;
}

std::string list_of(const PlanReport& p) {
  std::string s;
  for (const PlannedCollective& c : p.collectives())
    s += cat(to_string(c.phase), " ", title(c.kind), "@", c.axes, " ", c.bytes, " ", to_string(c.subject), " ", c.what, " ", c.line, "; ", c.why, "\n");
  return s;
}

// What one more layer adds.
Counts per_layer(const std::string& mesh, int zero) {
  Counts two = counts_of(plan_of(2, mesh, zero));
  for (const auto& [what, n] : counts_of(plan_of(1, mesh, zero))) two[what] -= n;
  std::erase_if(two, [](const auto& x) { return x.second == 0; });
  return two;
}

TEST(Golden, Show) { printf("%s\n", list_of(plan_of(1, "dp2,cp2,tp2", 3)).c_str()); for (auto& [w,n] : per_layer("dp2,cp2,tp2", 3)) printf("%s %ld\n", w.c_str(), n); }

}  // namespace
}  // namespace weft::dist
