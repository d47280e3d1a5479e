// Training with sums that do not depend on order: close to ordinary training, and the same bits when the sequences of
// the batch change places, as they do when a mesh cuts it.
#include <gtest/gtest.h>

#include <cmath>

#include "framework/base/switches.h"
#include "framework/base/thread_pool.h"
#include "framework/testing/compare.h"
#include "models/gpt/config.h"
#include "models/llama/config.h"
#include "models/moe/config.h"
#include "models/testing/train_steps.h"

namespace weft {
namespace {

using testing::TrainCase;
using testing::TrainSteps;

struct Trained {
  std::vector<double> losses;
  std::vector<Tensor> values;  // losses, gradients' norms and weights
  std::string report;
};

constexpr int64_t kBatch = 6;

// Sequence i of the batch is sequence (i + turn) % kBatch of the text.
Trained train(const TrainCase& c, const CompileOptions& options, int64_t turn = 0) {
  set_switch("WEFT_CXX", "none");  // interpreted: quicker for so little data
  TrainSteps training(c, {.batch = kBatch, .compile = options});
  const Tensor& text = training.text();
  const Tensor turned = cat(std::vector<Tensor>{text.slice(0, turn, kBatch), text.slice(0, 0, turn)});
  Trained run;
  for (int i = 0; i < 3; ++i) {
    const testing::StepOut out = training.step(turned);
    run.losses.push_back(out.loss.item<double>());
    run.values.push_back(out.loss);
    run.values.push_back(out.norm);
  }
  for (const Tensor& p : training.parameters()) run.values.push_back(p);
  run.report = training.report();
  return run;
}

const TrainCase kCases[] = {
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

class VerifyNumerics : public ::testing::TestWithParam<TrainCase> {};

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
