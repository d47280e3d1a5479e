// A training step under a memory budget: the peak keeps to it, is predicted exactly, and losses and weights keep their
// bits, for every family.
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "framework/base/switches.h"
#include "framework/testing/compare.h"
#include "models/gpt/config.h"
#include "models/llama/config.h"
#include "models/moe/config.h"
#include "models/testing/train_steps.h"

namespace weft {
namespace {

using testing::TrainSteps;

struct Case : testing::TrainCase {
  bool generated = false;  // kernels; else interpreted, as quickly for so little data as they are compiled
};

struct Trained {
  std::vector<Tensor> values;  // losses and weights
  CompileStats stats;
  std::string report;
  int64_t fixed = 0;  // bytes of parameters, their gradients and the optimiser's state
};

Trained train(const Case& c, CompileOptions options) {
  options.numerics = "eager";  // 16-bit values rounded alike wherever they are computed again
  set_switch("WEFT_CXX", c.generated ? "" : "none");
  TrainSteps training(c, {.size = {{"vocab", "64"}, {"context", "32"}, {"layers", "3"}, {"heads", "4"}, {"dim", "64"}},
                          .batch = 8,
                          .compile = options});
  Trained run;
  for (int i = 0; i < 2; ++i) run.values.push_back(training.step().loss);
  for (const Tensor& p : training.parameters()) {
    run.values.push_back(p);
    run.fixed += 4 * p.type().nbytes();  // AdamW has two moments
  }
  run.stats = training.stats();
  run.report = training.report();
  return run;
}

const Case kCases[] = {
    {{"gpt", gpt::family(), {{"ffn", "256"}}, {}}, true},
    {{"gpt_bf16", gpt::family(), {{"ffn", "256"}}, kBFloat16}},
    {{"gpt_dropout", gpt::family(), {{"ffn", "256"}, {"dropout", "0.1"}}, {}}},
    {{"llama", llama::family(), {{"kv_heads", "2"}, {"ffn", "192"}}, {}}},
    {{"llama_bf16", llama::family(), {{"kv_heads", "2"}, {"ffn", "192"}}, kBFloat16}},
    {{"moe", moe::family(), {{"kv_heads", "2"}, {"ffn", "96"}, {"experts", "4"}}, {}}},
    {{"moe_bf16", moe::family(), {{"kv_heads", "2"}, {"ffn", "96"}, {"experts", "4"}}, kBFloat16}, true},
};

class MemoryBudget : public ::testing::TestWithParam<Case> {};

void expect_same(const Trained& a, const Trained& b, const std::string& what) {
  ASSERT_EQ(a.values.size(), b.values.size());
  for (size_t i = 0; i < a.values.size(); ++i)
    EXPECT_TRUE(testing::same_bits(a.values[i], b.values[i])) << what << ", value " << i;
}

TEST_P(MemoryBudget, IsKeptWithTheSameBits) {
  const Trained free = train(GetParam(), {});
  const int64_t peak = free.stats.planned_peak_bytes;
  EXPECT_EQ(free.stats.measured_peak_bytes, peak);
  // Nothing fits into one byte. The error reports the smallest possible peak.
  int64_t least = 0;
  try {
    train(GetParam(), {.memory_budget = 1});
    FAIL() << "a budget of one byte was kept";
  } catch (const Error& e) {
    const std::string text = e.what();
    const size_t end = text.find(" at the least");
    ASSERT_NE(end, text.npos) << text;
    least = std::stoll(text.substr(text.rfind(' ', end - 1) + 1));
  }
  // Clipping needs all gradients at once, so gradients, parameters and moments stay.
  EXPECT_LT(least - free.fixed, (peak - free.fixed) * 7 / 10);
  EXPECT_THROW(train(GetParam(), {.memory_budget = least - 1}), Error);

  int64_t last = peak;
  for (int64_t budget :
       std::set<int64_t, std::greater<>>{peak, std::max(peak * 4 / 5, least), std::max(peak * 3 / 5, least), least}) {
    const Trained run = train(GetParam(), {.memory_budget = budget});
    EXPECT_LE(run.stats.planned_peak_bytes, budget);
    EXPECT_LE(run.stats.planned_peak_bytes, last) << "a smaller budget has a larger peak";
    EXPECT_EQ(run.stats.measured_peak_bytes, run.stats.planned_peak_bytes);
    EXPECT_EQ(run.report.find("computed again") != run.report.npos, budget < peak) << run.report;
    last = run.stats.planned_peak_bytes;
    expect_same(free, run, str_cat("budget ", budget));
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, MemoryBudget, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace weft
