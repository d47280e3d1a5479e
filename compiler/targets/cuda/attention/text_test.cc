// The readable part of generated kernels: the constants, the mods and the order of the shared bodies.
//   ./bazelw run //compiler/targets/cuda/attention:text_test -- --update=$PWD/compiler/targets/cuda/attention/testdata
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "compiler/targets/cuda/attention/program.h"
#include "compiler/targets/cuda/attention/tiles.h"
#include "framework/base/str_cat.h"
#include "ops/attention/flex_attention.h"
#include "ops/core/core.h"

namespace weft::cuda {
namespace {

std::string g_update;

/// The text of one kernel of a call.
std::string text_of(const FlexAttentionOptions& o, AttentionPart part, DType type = kBFloat16) {
  const Tensor q = zeros({2, 4, 256, 64}, {.dtype = type});
  const weft::internal::AttentionCall call = weft::internal::attention_call(q, q, q, o);
  AttentionSpec s;
  s.type = type;
  s.blocks = call.attrs.i("block_q") > 0;
  const auto graph = [&](const char* key) { return call.attrs.has(key) ? call.attrs.get<Ref<Graph>>(key) : nullptr; };
  s.score = graph("score"), s.mask = graph("mask");
  s.scale_first = s.score != nullptr;
  if (part == AttentionPart::kKeyGradHopper) s = hopper_grad_tiles(std::move(s), part);
  size_t next = 3;
  for (int64_t i = 0; i < call.attrs.i("score_tables"); ++i) s.score_tables.push_back(call.operands[next++].type());
  for (int64_t i = 0; i < call.attrs.i("mask_tables"); ++i) s.mask_tables.push_back(call.operands[next++].type());
  return internal::attention_text(s, part, false);
}

void expect_golden(const std::string& name, const std::string& text) {
  if (!g_update.empty()) {
    std::ofstream(str_cat(g_update, "/", name, ".golden")) << text;
    return;
  }
  std::ifstream file(str_cat("compiler/targets/cuda/attention/testdata/", name, ".golden"));
  std::stringstream want;
  want << file.rdbuf();
  EXPECT_EQ(text, want.str()) << name;
}

TEST(AttentionText, Causal) {
  const BlockMask mask = create_block_mask(attention::causal(), 1, 1, 256, 256);
  expect_golden("causal", text_of({.block_mask = mask}, AttentionPart::kForward));
}

TEST(AttentionText, CausalBackward) {
  const BlockMask mask = create_block_mask(attention::causal(), 1, 1, 256, 256);
  expect_golden("causal_backward_sm90a", text_of({.block_mask = mask}, AttentionPart::kKeyGradHopper));
}

TEST(AttentionText, Alibi) {
  const Tensor slopes = full({4}, 0.5).requires_grad();
  expect_golden("alibi_backward", text_of({.score_mod = attention::alibi(slopes), .mask_mod = attention::causal()},
                                          AttentionPart::kTableGrad));
}

TEST(AttentionText, Document) {
  const Tensor ids = zeros({256}, {.dtype = kInt32});
  const BlockMask mask = create_block_mask(attention::document(ids) & attention::causal(), 1, 1, 256, 256);
  expect_golden("document", text_of({.block_mask = mask}, AttentionPart::kForward));
}

// Tables of another length use the same kernels; tables of another rank do not.
TEST(AttentionText, LengthsOfTablesAreParameters) {
  auto of_mask = [](int64_t n) {
    return text_of({.mask_mod = attention::document(zeros({n}, {.dtype = kInt32}))}, AttentionPart::kForward);
  };
  EXPECT_EQ(of_mask(256), of_mask(300));
  auto of_score = [](int64_t n, AttentionPart part) {
    const Tensor bias = zeros({4, n}).requires_grad(), slopes = full({4}, 0.5).requires_grad();
    return text_of({.score_mod = [=](const Score& s) { return s.value + bias[s.h][s.kv] * slopes[s.h]; }}, part);
  };
  for (AttentionPart part : {AttentionPart::kForward, AttentionPart::kTableGrad})
    EXPECT_EQ(of_score(256, part), of_score(300, part));
}

}  // namespace
}  // namespace weft::cuda

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i)
    if (const std::string a = argv[i]; a.starts_with("--update=")) weft::cuda::g_update = a.substr(9);
  return RUN_ALL_TESTS();
}
