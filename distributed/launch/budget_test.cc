// A memory budget on a mesh: the ranks compute values again until their plans fit, with the same bits. If no plan fits,
// the error lists the largest uses of memory.
#include <gtest/gtest.h>

#include <string_view>

#include "distributed/launch/compile.h"
#include "distributed/launch/testing/gpt_training.h"
#include "framework/base/switches.h"
#include "framework/testing/compare.h"

namespace weft::dist {
namespace {

struct Trained {
  std::vector<Tensor> values;  // losses, norms and weights
  CompileStats stats;
  std::string report;
};

Trained train(const char* mesh, int64_t budget) {
  manual_seed(7);
  testing::GptTraining t({.vocab = 64, .context = 32, .layers = 3, .heads = 4, .dim = 64, .ffn = 256});
  auto step = compile([&](Tensor tokens, Tensor targets) { return t(tokens, targets); },
                      {.mesh = Mesh::parse(mesh), .memory_budget = budget, .numerics = "eager"});
  const Tensor x = randint(0, 64, {8, 32}, {.dtype = kInt32});
  Trained run;
  for (int k = 0; k < 2; ++k)
    for (const Tensor& out : step(x, x)) run.values.push_back(out);
  for (const auto& p : t.opt.parameters()) run.values.push_back(p.value());
  run.stats = step.stats();
  run.report = step.report();
  return run;
}

class MeshBudget : public ::testing::TestWithParam<const char*> {};

TEST_P(MeshBudget, IsKeptWithTheSameBits) {
  const std::string was = switch_value("WEFT_CXX");
  set_switch("WEFT_CXX", "none");
  const Trained free = train(GetParam(), 0);
  const int64_t peak = free.stats.planned_peak_bytes;
  EXPECT_EQ(free.report.find("computed again"), std::string::npos);
  int64_t least = 0;
  try {
    train(GetParam(), 1);
    FAIL() << "a budget of one byte was kept";
  } catch (const Error& e) {
    const std::string text = e.what();
    EXPECT_EQ(e.code(), Code::kResourceExhausted);
    EXPECT_EQ(text.rfind("compile: a rank needs ", 0), 0u) << text;
    for (const char* part : {" bytes at its peak (arena ", ", cells ", ", outputs ", ", constants ",
                             " at the least, with recomputation; memory_budget is 1"})
      EXPECT_NE(text.find(part), text.npos) << text;
    const size_t end = text.find(" at the least");
    ASSERT_NE(end, text.npos) << text;
    least = std::stoll(text.substr(text.rfind(' ', end - 1) + 1));
  }
  EXPECT_LT(least, peak * 19 / 20);
  for (int64_t budget : {(least + peak) / 2, least}) {
    const Trained tight = train(GetParam(), budget);
    EXPECT_LE(tight.stats.planned_peak_bytes, budget);
    EXPECT_EQ(tight.stats.measured_peak_bytes, tight.stats.planned_peak_bytes);
    // On fsdp with tp, a smaller plan of the products is enough: nothing else at the peak can be computed again.
    if (budget == least && std::string_view(GetParam()) != "fsdp2,tp2") {
      EXPECT_NE(tight.report.find(str_cat("memory_budget ", budget, ": ")), std::string::npos) << tight.report;
    }
    ASSERT_EQ(tight.values.size(), free.values.size());
    for (size_t i = 0; i < free.values.size(); ++i)
      EXPECT_TRUE(weft::testing::same_bits(tight.values[i], free.values[i])) << budget << ", value " << i;
  }
  set_switch("WEFT_CXX", was);
}
INSTANTIATE_TEST_SUITE_P(Meshes, MeshBudget, ::testing::Values("dp2", "fsdp2", "tp2", "fsdp2,tp2"));

}  // namespace
}  // namespace weft::dist
