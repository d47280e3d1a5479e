// With sums that do not depend on order a mesh gives the bits of one device: losses, gradients' norms, weights and the
// optimiser's state after some steps.
#include <gtest/gtest.h>

#include "distributed/launch/compile.h"
#include "framework/base/switches.h"
#include "framework/testing/compare.h"
#include "models/gpt/model.h"
#include "weft.h"

namespace weft::dist {
namespace {

struct Trained {
  std::vector<std::pair<std::string, Tensor>> values;
};

Trained train(const std::string& mesh, std::optional<DType> dtype, const Plan& plan = {}) {
  set_switch("WEFT_CXX", "none");  // interpreted: quicker for so little data
  gpt::Config config;
  config.vocab = 48;
  config.context = 16;
  config.layers = 2;
  config.heads = 4;
  config.dim = 32;
  config.ffn = 64;
  config.dropout = 0.1;
  manual_seed(7);
  gpt::Model model(config);
  model.set_compute_dtype(dtype);
  model.train();
  optim::AdamW opt(optim::decay_groups(model.parameters(), 0.1), {.lr = 1e-3});
  auto fn = [&](Tensor tokens, Tensor targets) {
    Tensor loss = model.loss(tokens, targets).loss;
    auto [g, norm] = optim::clip_grad_norm(grad(loss, opt.parameters()), 1.0);
    opt.step(g);
    return std::vector<Tensor>{loss, norm};
  };
  auto step = mesh.empty() ? weft::compile(fn, {.verify_numerics = true})
                           : compile(fn, {.mesh = Mesh::parse(mesh), .plan = plan, .verify_numerics = true});
  Trained r;
  manual_seed(11);
  for (int i = 0; i < 3; ++i) {
    Tensor tokens = randint(0, config.vocab, {4, 16}, {.dtype = kInt32});
    Tensor targets = randint(0, config.vocab, {4, 16}, {.dtype = kInt32});
    auto out = step(tokens, targets);
    r.values.emplace_back(cat("loss ", i), out[0]);
    r.values.emplace_back(cat("norm ", i), out[1]);
  }
  for (auto& [name, p] : model.named_parameters()) r.values.emplace_back(name, p.value().detach());
  for (auto& [name, cell] : opt.named_cells()) r.values.emplace_back(name, cell.value());
  return r;
}

void expect_bits(const std::string& mesh, std::optional<DType> dtype, const Trained& want) {
  const Trained got = train(mesh, dtype);
  ASSERT_EQ(got.values.size(), want.values.size());
  int differ = 0;
  for (size_t i = 0; i < want.values.size(); ++i) {
    const auto same = testing::same_bits(got.values[i].second, want.values[i].second);
    if (!same && ++differ <= 3) ADD_FAILURE() << mesh << ", " << want.values[i].first << ": " << same.message();
  }
  EXPECT_EQ(differ, 0) << mesh;
}

TEST(MeshVerifyNumerics, TheBitsOfOneDevice) {
  const Trained want = train("", {});
  for (const char* mesh : {"dp2", "fsdp2", "tp2", "cp2", "dp4", "fsdp2,tp2", "dp2,fsdp2,tp2"})
    expect_bits(mesh, {}, want);
}

TEST(MeshVerifyNumerics, TheBitsOfOneDeviceInBfloat16) {
  const Trained want = train("", kBFloat16);
  for (const char* mesh : {"dp2", "fsdp2,tp2"}) expect_bits(mesh, kBFloat16, want);
}

}  // namespace
}  // namespace weft::dist
