#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tools/precision/format_table.h"
#include "tools/precision/op_errors.h"
#include "tools/precision/tensor_ranges.h"
#include "tools/precision/training.h"
#include "weft.h"

namespace weft::precision {
namespace {

const RunOptions kSmall{.config = "gpt_tiny", .batch_size = 2, .seq_len = 16, .steps = 3};

TEST(FormatTable, HasARowForEachFormat) {
  const auto lines = format_lines();
  ASSERT_EQ(lines.size(), 14u);
  EXPECT_EQ(lines[5], (std::vector<std::string>{"E4M3", "8", "1", "4", "3", "448", "0.015625", "0.00195312", "0.125",
                                                "NaN", "-"}));
  EXPECT_EQ(format_json()[9]["block_scale"], "E4M3");
}

TEST(OpErrors, GrowWithFewerDigitsAndWithRoundedSums) {
  std::map<std::pair<std::string, std::string>, OpError> by;
  for (const OpError& e : op_errors(20, 1)) by[{e.op, e.format}] = e;
  for (const char* op : {"product", "dot", "softmax", "layer norm"}) {
    const char* order[] = {"FP32", "FP16", "BF16", "E4M3", "E2M1"};
    for (int i = 0; i + 1 < 5; ++i)
      EXPECT_LT((by[{op, order[i]}].wide.median), (by[{op, order[i + 1]}].wide.median)) << op << " " << order[i];
  }
  EXPECT_NEAR((by[{"product", "FP16"}].wide.median / by[{"product", "TF32"}].wide.median), 1, 0.01);
  EXPECT_GT((by[{"squares", "BF16"}].narrow->median), 5 * (by[{"squares", "BF16"}].wide.median));
  // A sum of squares in E4M3 stops growing where half its last place exceeds a term: far below 256.
  EXPECT_GT((by[{"squares", "E4M3"}].narrow->median), 0.3);
  // A format without blocks has errors of each operation; a format with blocks has none.
  const auto once = op_errors(1, 1);
  EXPECT_EQ(std::ranges::count_if(once, [](const OpError& e) { return e.narrow.has_value(); }), 9 * 7);
  EXPECT_EQ(once.size(), 9u * 10);
  // A block's scale keeps values from becoming 0.
  EXPECT_LT((by[{"product", "MXFP4"}].wide.median), (by[{"product", "E2M1"}].wide.median));
}

TEST(Magnitudes, CountWhatFormatsLose) {
  const Magnitudes m = magnitudes_of(
      Tensor::from_vector<float>({0, 1, 464, 465, 65519, 65520, -0x1p-10f, 0x1.8p-10f, 0x1p-25f, INFINITY}, {10}));
  EXPECT_EQ(m.elements, 10);
  EXPECT_EQ(m.zeros, 1);
  EXPECT_EQ(m.nonfinite, 1);
  EXPECT_EQ(m.by_exponent.at(15), 2);  // 65519 and 65520
  const Losses e4m3 = m.by_format.at("E4M3"), f16 = m.by_format.at("FP16");
  EXPECT_EQ(e4m3.overflow, 3);  // beyond 464
  EXPECT_EQ(e4m3.flushed, 2);   // 2^-10, half the least subnormal number, and 2^-25
  EXPECT_EQ(e4m3.underflow, 3);
  EXPECT_EQ(f16.overflow, 1);
  EXPECT_EQ(f16.flushed, 1);
  EXPECT_EQ(m.by_format.at("BF16").underflow, 0);
}

TEST(TensorRanges, HaveParametersValuesGradientsAndUpdate) {
  Training t(kSmall, {"f32"});
  t.step();
  const auto [tokens, targets] = t.next_batch();
  const std::vector<TensorRange> ranges = tensor_ranges(t.graph(), std::vector{tokens, targets});
  std::map<TensorKind, int64_t> elements;
  for (const TensorRange& r : ranges) elements[r.kind] += r.magnitudes.elements;
  EXPECT_EQ(elements.size(), 4u);
  int64_t weights = 0;
  for (const Parameter& p : t.model().parameters()) weights += p.shape().numel();
  EXPECT_EQ(elements[TensorKind::kParameter], weights);
  EXPECT_GE(elements[TensorKind::kGradient], weights);
  EXPECT_TRUE(std::any_of(ranges.begin(), ranges.end(), [](const TensorRange& r) {
    return r.kind == TensorKind::kUpdate && r.name.find("exp_avg_sq") != std::string::npos;
  }));
}

TEST(Training, DtypesStartFromOneModelAndLearn) {
  std::vector<double> first;
  for (const PrecisionMode& mode : training_modes()) {
    Training t(kSmall, mode);
    first.push_back(t.step());
    EXPECT_NEAR(first.back(), first[0], 0.02) << mode.name;
    double last = 0;
    for (int i = 0; i < 12; ++i) last = t.step();
    EXPECT_LT(last, first.back() - 0.1) << mode.name;
  }
  EXPECT_EQ(first[0], first[3]);  // the forward pass equals f32's
  EXPECT_NE(first[0], first[1]);
}

TEST(Mismatch, Figures) {
  const std::vector<double> forward{-1, -2, -3}, decoded{-1, -1.5, -3.25};
  const DecodingMismatch m = mismatch_of(forward, decoded);
  EXPECT_DOUBLE_EQ(m.mean, 0.25);
  EXPECT_DOUBLE_EQ(m.max, 0.5);
  EXPECT_DOUBLE_EQ(m.bias, 0.25 / 3);
  EXPECT_DOUBLE_EQ(m.ratio_99, 1 - std::exp(-0.25));
}

TEST(Decoder, AgreesWithTheForwardPass) {
  Training t(kSmall, {"f32"});
  t.model().eval();
  const Decoder decoder(t.model(), 3, 12);
  const Decoder::ScoredText text = decoder.sample(std::vector<int64_t>{10, 20, 30}, 12, 7);
  EXPECT_EQ(text.tokens.shape(), (Shape{3, 12}));
  EXPECT_LT(mismatch_of(ForwardScorer(t.model())(text.tokens), text.log_probs).max, 1e-4);
  EXPECT_EQ(decoder.score(text.tokens), text.log_probs);
  EXPECT_NE(decoder.sample(std::vector<int64_t>{10, 20, 30}, 12, 8).log_probs, text.log_probs);
}

TEST(Reinforce, RaisesTheRewardAndDriftsFromTheStart) {
  Training t(kSmall, {"f32"});
  t.step();
  t.model().eval();
  const std::vector<ReinforceStep> steps =
      reinforce(kSmall, t.model(), {"bf16", kBFloat16}, {.steps = 25, .texts = 8, .length = 12, .lr = 2e-3, .seed = 1});
  ASSERT_EQ(steps.size(), 25u);
  const auto two = reinforce(kSmall, t.model(), {"f32"}, {.steps = 25, .texts = 2, .length = 6},
                             [](int64_t k, const ReinforceStep&) { return k < 1; });
  EXPECT_EQ(two.size(), 2u);
  EXPECT_NEAR(steps[0].drift, 0, 0.05);
  EXPECT_GT(steps.back().drift, steps[0].drift + 0.05);
  EXPECT_GT(steps.back().reward, steps[0].reward + 0.1);
}

}  // namespace
}  // namespace weft::precision
