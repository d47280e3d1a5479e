// Attention's kernels compile on every architecture for which they are selected, without spills, within registers and
// shared memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "compiler/targets/cuda/attention/program.h"
#include "compiler/targets/cuda/nvrtc/testing/compile_check.h"
#include "compiler/targets/cuda/nvrtc/testing/opcodes.h"
#include "ops/attention/flex_attention.h"
#include "ops/attention/record.h"
#include "ops/core/core.h"

namespace weft::cuda {
namespace {

/// All kernels of a call and of its derivative, with distinct symbols.
void add_kernels(std::vector<Kernel>* to, DType type, int64_t d, int64_t dv, const FlexAttentionOptions& o,
                 int64_t q_len = 1024, const AttentionKernelOptions& options = {}, bool backward = true) {
  const TensorOptions t{.dtype = type};
  const Tensor q = zeros({2, 4, q_len, d}, t), k = zeros({2, 4, 1024, d}, t), v = zeros({2, 4, 1024, dv}, t);
  const weft::internal::AttentionCall call = weft::internal::attention_call(q, k, v, o);
  for (bool back : {false, true}) {
    if (back && !backward) break;
    std::vector<Tensor> in = call.operands;
    if (back) {
      const Tensor out = zeros({2, 4, q_len, dv}, t), line = zeros({2, 4, q_len});
      in.insert(in.end(), {out, line, line, out, line});
    }
    const OpDef& op = back ? attention_backward_op : attention_op;
    std::vector<TensorType> types;
    std::vector<StridedView> views, results;
    for (const Tensor& x : in) types.push_back(x.type()), views.push_back(x.view_for_kernel());
    for (const TensorType& x : op.infer({op, call.attrs, types}))
      results.push_back({nullptr, x.dtype, x.shape, contiguous_strides(x.shape)});
    const AttentionProgram program(call.attrs, views, results, back, options);
    for (Kernel kernel : program.kernels()) {
      const std::string name = str_cat(kernel.symbol, "_", to->size());
      kernel.text.replace(kernel.text.rfind(kernel.symbol + "(const __grid"), kernel.symbol.size(), name);
      kernel.symbol = name;
      kernel.max_spill_bytes = 0;
      to->push_back(std::move(kernel));
    }
  }
}

void expect_compiles(const std::vector<Kernel>& kernels, const std::vector<Arch>& archs = tested_archs()) {
  std::string table;
  WEFT_EXPECT_COMPILES(kernels, {}, archs, &table);
  std::cout << table;
}

/// Kernels without Hopper's instructions have one text for all architectures: the oldest and the newest are enough.
const std::vector<Arch>& first_and_last() {
  static const std::vector<Arch> archs{tested_archs().front(), tested_archs().back()};
  return archs;
}

const BlockMask& causal() {
  static const BlockMask mask = create_block_mask(attention::causal(), 1, 1, 1024, 1024);
  return mask;
}

TEST(AttentionCompiles, Causal) {
  std::vector<Kernel> kernels;
  for (int64_t d : {64, 128, 256}) add_kernels(&kernels, kBFloat16, d, d, {.block_mask = causal()});
  expect_compiles(kernels);
}

TEST(AttentionCompiles, F32AndF16) {
  std::vector<Kernel> kernels;
  for (int64_t d : {64, 128, 256}) add_kernels(&kernels, kFloat32, d, d, {.block_mask = causal()});
  add_kernels(&kernels, kFloat16, 64, 64, {.mask_mod = attention::sliding_window(100)});
  add_kernels(&kernels, kFloat32, 64, 64, {.block_mask = causal()}, 1024, {.tf32 = true});
  expect_compiles(kernels, first_and_last());
}

TEST(AttentionCompiles, Mods) {
  std::vector<Kernel> kernels;
  const Tensor slopes = full({4}, 0.5), ids = zeros({1024}, {.dtype = kInt32}), bias = zeros({4, 127});
  add_kernels(&kernels, kBFloat16, 64, 64, {.score_mod = attention::alibi(slopes), .block_mask = causal()});
  add_kernels(&kernels, kBFloat16, 128, 128,
              {.score_mod = attention::softcap(30), .mask_mod = attention::document(ids) & attention::causal()});
  const size_t first = kernels.size();
  add_kernels(&kernels, kBFloat16, 64, 64,
              {.score_mod = attention::relative_bias(bias), .mask_mod = attention::causal()});
  // The place of a table's row, beside tiles of keys and queries: eight values, stored once and loaded once per tile.
  for (size_t i = first; i < kernels.size(); ++i) kernels[i].max_spill_bytes = 64;
  for (int64_t d : {64, 128}) add_kernels(&kernels, kBFloat16, d, d, {.block_mask = causal(), .dropout_p = 0.1});
  add_kernels(&kernels, kBFloat16, 128, 128, {}, 1, {}, false);
  expect_compiles(kernels, first_and_last());
}

TEST(AttentionCompiles, Hopper) {
  std::vector<Kernel> kernels;
  const AttentionKernelOptions hopper{.sm90a = true, .maps = true};
  for (int64_t d : {64, 128, 256}) {
    add_kernels(&kernels, kBFloat16, d, d, {.block_mask = causal()}, 1024, hopper, false);
    const ScoreMod mod = d <= 128 ? attention::alibi(4) : attention::softcap(30);
    add_kernels(&kernels, kFloat16, d, d, {.score_mod = mod, .block_mask = causal()}, 1024, hopper, false);
    if (d > 128) kernels.back().max_spill_bytes = 160;  // values that a loop of products reads once per tile
    if (d <= 128) add_kernels(&kernels, kBFloat16, d, d, {.dropout_p = 0.1}, 1024, hopper, false);
  }
  add_kernels(&kernels, kBFloat16, 192, 128, {.mask_mod = attention::sliding_window(100)}, 1024, hopper, false);
  expect_compiles(kernels);
}

// ptxas must leave the softmax between the wait for q k^T and the wait for p v: the products p v run meanwhile.
TEST(AttentionCompiles, HopperSoftmaxRunsDuringProducts) {
  if (!nvrtc().unavailable.empty()) GTEST_SKIP() << nvrtc().unavailable;
  std::vector<Kernel> kernels;
  const AttentionKernelOptions hopper{.sm90a = true, .maps = true};
  for (int64_t d : {64, 128, 256}) {
    add_kernels(&kernels, kBFloat16, d, d, {}, 1024, hopper, false);
    add_kernels(&kernels, kBFloat16, d, d, {.block_mask = causal()}, 1024, hopper, false);
    if (d <= 128) add_kernels(&kernels, kFloat16, d, d, {.score_mod = attention::alibi(4)}, 1024, hopper, false);
  }
  add_kernels(&kernels, kBFloat16, 128, 128, {.score_mod = attention::softcap(30)}, 1024, hopper, false);
  add_kernels(&kernels, kBFloat16, 64, 64, {.dropout_p = 0.1}, 1024, hopper, false);
  const CompiledKernels compiled = compile(kernels, {90, true});
  for (size_t i = 0; i < kernels.size(); ++i) {
    const std::string ops = overlap_opcodes(compiled.cubins[i]->bytes);
    size_t most = 0;  // exponentials after a wait for all but one group of products and before the next wait
    for (size_t at = 0; (at = ops.find('1', at)) != ops.npos; ++at)
      most = std::max<size_t>(most, std::count(ops.begin() + at, ops.begin() + ops.find_first_of("01", at + 1), 'M'));
    EXPECT_GE(most, 32u) << kernels[i].symbol << ": " << ops;
  }
}

TEST(AttentionCompiles, HopperBackward) {
  std::vector<Kernel> all, kernels;
  const AttentionKernelOptions hopper{.sm90a = true, .maps = true};
  const Tensor slopes = full({4}, 0.5), ids = zeros({1024}, {.dtype = kInt32});
  for (int64_t d : {64, 96, 128}) {
    add_kernels(&all, kBFloat16, d, d, {.block_mask = causal()}, 1024, hopper);
    add_kernels(&all, kFloat16, d, d, {.score_mod = attention::alibi(slopes), .block_mask = causal()}, 1024, hopper);
  }
  add_kernels(&all, kBFloat16, 128, 128,
              {.score_mod = attention::softcap(30), .mask_mod = attention::document(ids) & attention::causal()}, 1024,
              hopper);
  for (int64_t d : {64, 128})
    add_kernels(&all, kBFloat16, d, d, {.block_mask = causal(), .dropout_p = 0.1}, 1024, hopper);
  add_kernels(&all, kBFloat16, 128, 64, {.scale = -1.0}, 1024, hopper);
  for (Kernel& k : all)
    if (k.symbol.find("grad_hopper") != k.symbol.npos) kernels.push_back(std::move(k));
  EXPECT_EQ(kernels.size(), 20u);
  expect_compiles(kernels);
}

}  // namespace
}  // namespace weft::cuda
