// Attention's kernels compile on every architecture, within registers, without spills.
#include <gtest/gtest.h>

#include <iostream>

#include "compiler/cuda/attention/spec.h"
#include "compiler/cuda/nvrtc/compile_check.h"
#include "compiler/cuda/words/words.h"
#include "ops/attention/masks.h"

namespace weft::cuda {
namespace {

TEST(AttentionCompiles, Forward) {
  AttentionSpec s;
  s.type = kBFloat16;
  const Body mask = weft::internal::trace_mask(attention::causal());
  s.mask = mask.graph;
  s.blocks = true;
  s.stages = 3;
  std::vector<Kernel> kernels{attention_kernel(s, AttentionPart::kForward)};
  std::string table;
  WEFT_EXPECT_COMPILES(kernels, {}, tested_archs(), &table);
  std::cout << table;
}

}  // namespace
}  // namespace weft::cuda
