// Attention's backward kernels in the emulation, against f64.
#include <gtest/gtest.h>

#include "compiler/targets/cuda/attention/testing/emulated_case.h"
#include "ops/attention/flex_attention.h"
#include "ops/core/core.h"

namespace weft::cuda {
namespace {

TEST(AttentionBackward, CausalBf16) {
  check_emulated(
      {.sizes = {.sq = 130, .skv = 130, .d = 64, .dv = 64}, .mask = "causal", .blocks = {128, 128}, .backward = true});
}

TEST(AttentionBackward, Types) {
  for (DType type : {kFloat32, kBFloat16, kFloat16})
    check_emulated({.sizes = {.b = 2, .kv_b = 2, .hq = 2, .hkv = 1, .sq = 70, .skv = 90, .d = 64, .dv = 64},
                    .type = type,
                    .mask = "sliding window",
                    .score = "softcap",
                    .blocks = {64, 64},
                    .backward = true});
}

TEST(AttentionBackward, Tf32) {
  check_emulated({.sizes = {.sq = 40, .skv = 70, .d = 24, .dv = 40},
                  .type = kFloat32,
                  .mask = "causal",
                  .backward = true,
                  .options = {.tf32 = true}});
}

TEST(AttentionBackward, HeadDims) {
  for (auto [d, dv] : {std::pair{1, 1}, {8, 24}, {40, 65}, {128, 128}, {192, 128}, {256, 256}, {64, 320}, {320, 16}})
    for (DType type : {kBFloat16, kFloat32})
      check_emulated({.sizes = {.sq = 33, .skv = 50, .d = d, .dv = dv},
                      .type = type,
                      .mask = "causal",
                      .backward = true,
                      .wide = d == 8});
}

TEST(AttentionBackward, Lengths) {
  for (int sq : {1, 17, 65, 129})
    for (int skv : {1, 31, 127, 200})
      check_emulated({.sizes = {.sq = sq, .skv = skv, .d = 16, .dv = 16}, .mask = "none", .backward = true});
}

TEST(AttentionBackward, GroupedHeads) {
  for (auto [hq, hkv] : {std::pair{3, 1}, {6, 2}, {8, 1}})
    for (int sq : {5, 70})
      check_emulated(
          {.sizes = {.b = 2, .kv_b = hq == 8 ? 1 : 2, .hq = hq, .hkv = hkv, .sq = sq, .skv = 67, .d = 16, .dv = 16},
           .mask = "padding",
           .score = "distance",
           .blocks = {sq == 5 ? 64 : 0, 64},
           .backward = true});
}

TEST(AttentionBackward, Masks) {
  for (const auto& m : testing::conformance_masks())
    check_emulated({.sizes = {.b = 2, .kv_b = 2, .hq = 2, .hkv = 2, .sq = 80, .skv = 100, .d = 16, .dv = 16},
                    .mask = m.name,
                    .blocks = {(m.name[0] + m.name[1]) % 2 ? 64 : 0, 64},
                    .backward = true});
}

TEST(AttentionBackward, Scores) {
  for (const auto& m : testing::conformance_scores())
    check_emulated({.sizes = {.b = 2, .kv_b = 2, .hq = 2, .hkv = 1, .sq = 40, .skv = 70, .d = 16, .dv = 16},
                    .type = m.name[0] % 2 ? kBFloat16 : kFloat32,
                    .mask = "causal",
                    .score = m.name,
                    .backward = true});
}

TEST(AttentionBackward, TablesWithoutGradients) {
  for (const auto& [score, fixed] : {std::pair{"learned alibi", 1},
                                     {"t5 bias", 1},
                                     {"temperature", 1},
                                     {"inner product", 1},
                                     {"inner product", 2},
                                     {"inner product", 3},
                                     {"a table twice", 1},
                                     {"without the score", 1}})
    check_emulated({.sizes = {.b = 2, .kv_b = 2, .hq = 2, .hkv = 1, .sq = 40, .skv = 70, .d = 16, .dv = 16},
                    .mask = "causal",
                    .score = score,
                    .backward = true,
                    .fixed_tables = fixed});
}

// No kernel and no memory for them.
TEST(AttentionBackward, TablesWithoutGradientsCostNothing) {
  const Tensor q = zeros({1, 4, 128, 64}, {.dtype = kBFloat16}), line = zeros({1, 4, 128});
  const Tensor slopes = full({4}, 0.5), wide = full({4}, 0.5, {.dtype = kFloat64});
  auto program = [&](const Tensor& table, int64_t fixed) {
    const weft::internal::AttentionCall call =
        weft::internal::attention_call(q, q, q, {.score_mod = attention::alibi(table)});
    std::vector<Tensor> in = call.operands;
    in.insert(in.end(), {q, line, q, line});
    std::vector<StridedView> views;
    for (const Tensor& t : in) views.push_back(t.view_for_kernel());
    const AttentionProgram p(call.attrs.with("fixed_tables", fixed), views, {views.data(), 3}, true);
    size_t text = 0;
    for (const Kernel& k : p.kernels()) text += k.text.find("table_grads(") != std::string::npos;
    return std::tuple{p.kernels().size(), text > 0, p.workspace(views)};
  };
  const int64_t delta = 4 * 128 * 4;  // bytes of a number per query
  EXPECT_EQ(program(slopes, 1), (std::tuple{size_t{3}, false, delta}));
  EXPECT_EQ(program(wide, 1), (std::tuple{size_t{3}, false, delta}));
  EXPECT_EQ(std::get<0>(program(slopes, 0)), 5u);
  EXPECT_GT(std::get<2>(program(slopes, 0)), delta);
}

// A table in f64 has no gradient on CUDA, but may be a constant.
TEST(AttentionBackward, ConstantsInF64) {
  testing::Dice dice(3);
  const Tensor x = testing::RandomOperand(kBFloat16, {1, 2, 40, 16}, dice).tensor, line = zeros({1, 2, 40});
  std::vector<Tensor> got[2];
  for (const bool wide : {false, true}) {
    const Tensor slopes = full({2}, 0.5, {.dtype = wide ? kFloat64 : kFloat32});
    const weft::internal::AttentionCall call =
        weft::internal::attention_call(x, x, x, {.score_mod = attention::alibi(slopes)});
    std::vector<Tensor> in = call.operands;
    in.insert(in.end(), {x, line, line, x, line});  // out, log_sum, max, gradients of out and log_sum
    got[wide] = run_emulated(call.attrs.with("fixed_tables", int64_t{1}), in, true);
  }
  ASSERT_EQ(got[1].size(), 3u);
  for (size_t i = 0; i < 3; ++i)
    EXPECT_EQ(got[1][i].to(kFloat32).to_vector<float>(), got[0][i].to(kFloat32).to_vector<float>()) << i;
}

}  // namespace
}  // namespace weft::cuda
