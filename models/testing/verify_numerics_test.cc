// Training with sums that do not depend on order: near the same run without, and the same bits when the sequences of
// the batch change places, as they do when a mesh cuts it.
#include <gtest/gtest.h>

#include <cmath>

#include "framework/base/switches.h"
#include "framework/base/thread_pool.h"
#include "framework/testing/compare.h"
#include "models/gpt/config.h"
#include "models/llama/config.h"
#include "models/moe/config.h"
#include "weft.h"

namespace weft {
namespace {

struct Case {
  const char* name;
  const nn::ModelFamily& family;
  nn::ConfigMap changes;
  std::optional<DType> dtype;
};

struct Trained {
  std::vector<double> losses;
  std::vector<Tensor> values;  // losses, gradients' norms and weights
  std::string report;
};

constexpr int64_t kBatch = 6;

// Sequence i of the batch is sequence (i + turn) % kBatch of the text.
Trained train(const Case& c, const CompileOptions& options, int64_t turn = 0) {
  set_switch("WEFT_CXX", "none");  // interpreted: quicker for so little data
  manual_seed(1);
  nn::ConfigMap config = c.family.preset(c.family.default_preset);
  const nn::ConfigMap tiny{{"vocab", "64"}, {"context", "16"}, {"layers", "2"}, {"heads", "2"}, {"dim", "32"}};
  for (const nn::ConfigMap* changes : {&tiny, &c.changes})
    for (const auto& [field, text] : *changes) config[field] = text;
  const auto model = c.family.make(config);
  model->set_compute_dtype(c.dtype);
  const Tensor text = randint(0, 64, {kBatch, 17});
  const Tensor turned = cat(std::vector<Tensor>{text.slice(0, turn, kBatch), text.slice(0, 0, turn)});
  const Tensor tokens = turned.slice(1, 0, 16), targets = turned.slice(1, 1, 17);
  optim::AdamW opt(model->parameters(), {.lr = 1e-2});
  auto step = compile(
      [&](Tensor x, Tensor y) {
        const nn::LossOut out = model->loss(x, y);
        auto [grads, norm] = optim::clip_grad_norm(grad(out.loss, opt.parameters()), 1.0);
        opt.step(grads);
        model->update_balance(out.expert_counts);
        return std::pair(out.loss, norm);
      },
      options);
  Trained run;
  for (int i = 0; i < 3; ++i) {
    const auto [loss, norm] = step(tokens, targets);
    run.losses.push_back(loss.item<double>());
    run.values.push_back(loss);
    run.values.push_back(norm);
  }
  for (const Parameter& p : opt.parameters()) run.values.push_back(p.value().detach());
  run.report = step.report();
  return run;
}

const Case kCases[] = {
    {"gpt", gpt::family(), {{"ffn", "64"}}, {}},
    {"gpt_bf16", gpt::family(), {{"ffn", "64"}}, kBFloat16},
    {"llama", llama::family(), {{"kv_heads", "1"}, {"ffn", "48"}}, {}},
    {"moe", moe::family(), {{"kv_heads", "1"}, {"ffn", "32"}, {"experts", "4"}}, {}},
    {"moe_shared",
     moe::family(),
     {{"kv_heads", "2"},
      {"ffn", "32"},
      {"experts", "4"},
      {"shared_ffn", "32"},
      {"dense_layers", "1"},
      {"dense_ffn", "48"},
      {"bias_rate", "0.01"}},
     {}},
};

class VerifyNumerics : public ::testing::TestWithParam<Case> {};

TEST_P(VerifyNumerics, LossesAreThoseOfThePlainRun) {
  const Trained plain = train(GetParam(), {}), exact = train(GetParam(), {.verify_numerics = true});
  // 16-bit activations: half an ulp of 2^-9 in each of a few roundings.
  const double tolerance = GetParam().dtype ? 0x1p-6 : 1e-5;
  for (size_t i = 0; i < plain.losses.size(); ++i)
    EXPECT_NEAR(exact.losses[i], plain.losses[i], tolerance * std::fabs(plain.losses[i])) << "step " << i;
  EXPECT_LT(exact.losses.back(), exact.losses.front());
  EXPECT_NE(exact.report.find("do not depend on order"), std::string::npos) << exact.report;
}

TEST_P(VerifyNumerics, OrderOfTheBatchAndThreadsDoNotMatter) {
  const Trained one = train(GetParam(), {.verify_numerics = true});
  const int before = num_threads();
  for (int64_t turn : {1, 3}) {
    set_num_threads(static_cast<int>(turn));
    const Trained other = train(GetParam(), {.verify_numerics = true}, turn);
    for (size_t i = 0; i < one.values.size(); ++i)
      EXPECT_TRUE(testing::same_bits(other.values[i], one.values[i])) << "turned by " << turn << ", value " << i;
  }
  set_num_threads(before);
}

INSTANTIATE_TEST_SUITE_P(Models, VerifyNumerics, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(VerifyNumericsOption, NeedsACapturedStep) {
  const auto build = [] { compile([](Tensor x) { return x; }, {.enabled = false, .verify_numerics = true}); };
  try {
    build();
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("verify_numerics"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace weft
