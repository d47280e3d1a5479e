// Tests that attention calls share the analysis of a mask while every byte of its tables is the same.
#include "ops/attention/call_mask.h"

#include <gtest/gtest.h>

#include "ops/attention/flex_attention.h"
#include "ops/core/core.h"

namespace weft::internal {
namespace {

std::shared_ptr<const CallMask> ask(const MaskMod& mask, int64_t n) {
  const Body body = trace_mask(mask);
  std::vector<StridedView> tables;
  for (const Tensor& t : body.lifted) tables.push_back(t.view_for_kernel());
  return mask_of_call(body.graph, tables, {1, 2, n, n}, true);
}

TEST(CallMask, IsSharedByLayersAndTheirBackward) {
  std::vector<int64_t> ids(200);
  for (int64_t i = 0; i < 200; ++i) ids[i] = i / 70;
  const Tensor doc = Tensor::from_vector<int64_t>(ids, {200});
  const auto first = ask(attention::document(doc) & attention::causal(), 200);
  EXPECT_EQ(ask(attention::document(doc) & attention::causal(), 200), first);
  EXPECT_EQ(ask(attention::document(doc + 0) & attention::causal(), 200), first);  // other memory, same ids
  EXPECT_NE(ask(attention::document(doc + 1) & attention::causal(), 200), first);
  EXPECT_NE(ask(attention::document(doc), 200), first);
  EXPECT_NE(ask(attention::document(doc) & attention::causal(), 199), first);
}

TEST(CallMask, ChangedContentsAreAnotherMask) {
  const int64_t n = 150;
  std::vector<int64_t> ids(n, 0);
  const Tensor doc = Tensor::from_blob(ids.data(), {n}, kInt64);
  const Tensor x = reshape(arange(n * 8, {.dtype = kFloat32}), {1, 1, n, 8}) / 1000.0;
  auto out = [&](const Tensor& table) {
    return flex_attention(x, x, x, {.mask_mod = attention::document(table)}).to_vector<float>();
  };
  const std::vector<float> before = out(doc);
  ids[n - 1] = 1;  // changes the memory without the cache noticing
  const std::vector<float> after = out(doc);
  EXPECT_NE(before, after);
  EXPECT_EQ(after, out(Tensor::from_vector<int64_t>(ids, {n})));
  EXPECT_EQ(after[(n - 1) * 8], x.to_vector<float>()[(n - 1) * 8]);  // the last query sees only itself
}

}  // namespace
}  // namespace weft::internal
