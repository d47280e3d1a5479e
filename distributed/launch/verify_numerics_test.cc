// If sums do not depend on order, a mesh gives the bits of one device: losses, gradient norms, weights and the
// optimiser's state after some steps.
#include <gtest/gtest.h>

#include "distributed/launch/compile.h"
#include "framework/base/switches.h"
#include "framework/testing/compare.h"
#include "models/gpt/config.h"
#include "models/moe/config.h"
#include "weft.h"

namespace weft::dist {
namespace {

struct Trained {
  std::vector<std::pair<std::string, Tensor>> values;
};

Trained train(const std::string& mesh, std::optional<DType> dtype, bool experts, const std::string& route = "learned") {
  set_switch("WEFT_CXX", "none");  // interpreted: faster for so little data
  manual_seed(7);
  const nn::ModelFamily& family = experts ? moe::family() : gpt::family();
  nn::ConfigMap config = family.preset(family.default_preset);
  const nn::ConfigMap small{{"vocab", "48"}, {"context", "16"}, {"layers", "2"}, {"heads", "4"}, {"dim", "32"}};
  const nn::ConfigMap plain{{"ffn", "64"}, {"dropout", "0.1"}};
  const nn::ConfigMap mixture{{"kv_heads", "2"}, {"ffn", "32"}, {"experts", "4"}, {"bias_rate", "0.01"}};
  for (const nn::ConfigMap* changes : {&small, experts ? &mixture : &plain})
    for (const auto& [field, text] : *changes) config[field] = text;
  if (experts) config["route"] = route;
  const auto model = family.make(config);
  model->set_compute_dtype(dtype);
  model->train();
  optim::AdamW opt(optim::decay_groups(model->parameters(), 0.1), {.lr = 1e-3});
  auto fn = [&](Tensor tokens, Tensor targets) {
    const nn::LossOut out = model->loss(tokens, targets);
    auto [g, norm] = optim::clip_grad_norm(grad(out.loss, opt.parameters()), 1.0);
    opt.step(g);
    model->update_balance(out.expert_counts);
    return std::vector<Tensor>{out.loss, norm};
  };
  auto step = mesh.empty() ? weft::compile(fn, {.verify_numerics = true})
                           : compile(fn, {.mesh = Mesh::parse(mesh), .verify_numerics = true});
  Trained r;
  manual_seed(11);
  for (int i = 0; i < 3; ++i) {
    Tensor tokens = randint(0, 48, {4, 16}, {.dtype = kInt32});
    Tensor targets = randint(0, 48, {4, 16}, {.dtype = kInt32});
    auto out = step(tokens, targets);
    r.values.emplace_back(str_cat("loss ", i), out[0]);
    r.values.emplace_back(str_cat("norm ", i), out[1]);
  }
  for (auto& [name, p] : model->named_parameters()) r.values.emplace_back(name, p.value().detach());
  for (auto& [name, cell] : opt.named_cells()) r.values.emplace_back(name, cell.value());
  return r;
}

void expect_bits(const std::string& mesh, std::optional<DType> dtype, const Trained& want, bool experts = false,
                 const std::string& route = "learned") {
  const Trained got = train(mesh, dtype, experts, route);
  ASSERT_EQ(got.values.size(), want.values.size());
  int differ = 0;
  for (size_t i = 0; i < want.values.size(); ++i) {
    const auto same = testing::same_bits(got.values[i].second, want.values[i].second);
    if (!same && ++differ <= 3) ADD_FAILURE() << mesh << ", " << want.values[i].first << ": " << same.message();
  }
  EXPECT_EQ(differ, 0) << mesh;
}

TEST(MeshVerifyNumerics, TheBitsOfOneDevice) {
  const Trained want = train("", {}, false);
  for (const char* mesh : {"dp2", "fsdp2", "tp2", "cp2", "dp4", "fsdp2,tp2", "dp2,fsdp2,tp2", "replica2,fsdp2"})
    expect_bits(mesh, {}, want);
}

TEST(MeshVerifyNumerics, TheBitsOfOneDeviceInBfloat16) {
  const Trained want = train("", kBFloat16, false);
  for (const char* mesh : {"dp2", "fsdp2,tp2"}) expect_bits(mesh, kBFloat16, want);
}

TEST(MeshVerifyNumerics, TheBitsOfOneDeviceWithChosenExperts) {
  for (const char* route : {"balanced", "skew:0.9"}) {
    const Trained want = train("", {}, true, route);
    for (const char* mesh : {"tp2", "dp2,ep2"}) expect_bits(mesh, {}, want, true, route);
  }
}

TEST(MeshVerifyNumerics, TheBitsOfOneDeviceWithExperts) {
  const Trained want = train("", {}, true);
  for (const char* mesh : {"dp2", "fsdp2", "tp2", "ep2", "dp2,ep2", "replica2,ep2"}) expect_bits(mesh, {}, want, true);
}

}  // namespace
}  // namespace weft::dist
