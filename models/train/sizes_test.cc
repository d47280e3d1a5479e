#include "models/train/sizes.h"

#include <gtest/gtest.h>

#include "framework/base/testing/error_of.h"
#include "models/gpt/model.h"

namespace weft::train {
namespace {

using weft::testing::error_of;

TEST(MemoryNeed, OfABatch) {
  const auto refusal = [](int64_t batch, int64_t length, int64_t memory) {
    return error_of([&] { check_batch_fits("batch_size", batch, length, memory); });
  };
  EXPECT_EQ(refusal(1'000'000'000, 256, 16'000'000'000),
            "--batch_size: got 1000000000; need at most 3906250: the tokens of a step with --seq_len 256 take 4.1 TB, "
            "and this host has 16 GB of memory");
  EXPECT_EQ(refusal(3'906'250, 256, 16'000'000'000), "");
  EXPECT_NE(refusal(3'906'251, 256, 16'000'000'000), "");
  EXPECT_NE(refusal(1'000'000'000, 1'000'000'000, 16'000'000'000), "");
  EXPECT_EQ(refusal(1'000'000'000, 256, -1), "");  // unknown
  EXPECT_EQ(error_of([] { check_batch_fits("outer_rows", 1'000'000'000, 256, 16'000'000'000); }).substr(0, 55),
            "--outer_rows: got 1000000000; need at most 3906250: the");
}

TEST(MemoryNeed, OfAModel) {
  const gpt::Model model({.vocab = 1 << 20, .context = 16, .layers = 1, .heads = 2, .dim = 1 << 16, .ffn = 32});
  train::Setup p;
  p.config_name = "gpt2-xl";
  TrainOptions o;
  const auto refusal = [&](int64_t memory) { return error_of([&] { check_model_fits(o, p, model, memory); }); };
  const std::string text = refusal(16'000'000'000);
  EXPECT_EQ(
      text.find("--config: got gpt2-xl; need a smaller model: its weights and the moments of the optimizer take "), 0u)
      << text;
  EXPECT_NE(text.find(" TB, and this host has 16 GB of memory"), text.npos) << text;
  EXPECT_EQ(refusal(int64_t{1} << 50), "");
  EXPECT_EQ(refusal(-1), "");
  o.set = {{"dim", "65536"}, {"vocab", "1048576"}};
  EXPECT_EQ(
      refusal(16'000'000'000).find("--config: got gpt2-xl with --set dim=65536,vocab=1048576; need a smaller model"),
      0u);
}

}  // namespace
}  // namespace weft::train
