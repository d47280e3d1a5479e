// Steps in a pipeline have the bits of one device with the same microbatches.
#include <gtest/gtest.h>

#include "distributed/launch/compile.h"
#include "distributed/stages/testing/trainer_step.h"
#include "framework/testing/compare.h"
#include "models/gpt/config.h"
#include "models/llama/config.h"
#include "models/moe/config.h"
#include "weft.h"

namespace weft::dist {
namespace {

using weft::testing::same_bits;
using weft::testing::trainer_step;
using weft::testing::TrainerStep;

struct Trained {
  std::vector<Tensor> results;
  std::vector<std::pair<std::string, Tensor>> cells;
  CompileStats stats;
};

Trained train(const nn::ModelFamily& family, const std::string& preset, int64_t microbatches,
              const nn::ConfigMap& changes, const CompileOptions& options) {
  const TrainerStep s = trainer_step(family, preset, microbatches, changes);
  auto step = dist::compile([&](Tensor x, Tensor y) { return s.fn(std::vector<Tensor>{x, y}); }, options);
  Trained t;
  for (int i = 0; i < 3; ++i)
    for (const Tensor& r : step(s.args[0], s.args[1])) t.results.push_back(r);
  for (const auto& [name, cell] : s.model->named_cells()) t.cells.emplace_back(name, cell.value());
  for (const auto& [name, cell] : s.optimizer->named_cells()) t.cells.emplace_back(name, cell.value());
  t.stats = step.stats();
  return t;
}

void expect_same(const Trained& got, const Trained& want) {
  ASSERT_EQ(got.results.size(), want.results.size());
  for (size_t i = 0; i < got.results.size(); ++i)
    EXPECT_TRUE(same_bits(got.results[i], want.results[i])) << "result " << i % 5 << " of step " << i / 5;
  ASSERT_EQ(got.cells.size(), want.cells.size());
  for (size_t i = 0; i < got.cells.size(); ++i)
    EXPECT_TRUE(same_bits(got.cells[i].second, want.cells[i].second)) << got.cells[i].first;
}

const char* const kSchedules[] = {"gpipe", "1f1b", "interleaved_1f1b", "zb_h1", "zb_2p", "zb_v", "dualpipe_v"};

void expect_bits_of_one_device(const nn::ModelFamily& family, const std::string& preset, const nn::ConfigMap& changes) {
  const int64_t microbatches = 8;
  const Trained want = train(family, preset, microbatches, changes, {});
  for (int ranks : {2, 4}) {
    CompileOptions o{.mesh = Mesh{{"pp", ranks}}};
    for (const char* schedule : kSchedules) {
      SCOPED_TRACE(str_cat(schedule, " on ", ranks, " ranks"));
      o.plan.pipeline = schedule;
      const Trained got = train(family, preset, microbatches, changes, o);
      expect_same(got, want);
      EXPECT_EQ(got.stats.planned_peak_bytes, got.stats.measured_peak_bytes);
    }
  }
}

TEST(PipelineStep, Gpt) { expect_bits_of_one_device(gpt::family(), "gpt_tiny", {{"dropout", "0.1"}, {"layers", "8"}}); }
TEST(PipelineStep, Llama) { expect_bits_of_one_device(llama::family(), "llama_tiny", {{"layers", "8"}}); }
TEST(PipelineStep, Moe) { expect_bits_of_one_device(moe::family(), "moe_tiny", {{"layers", "8"}}); }

}  // namespace
}  // namespace weft::dist
