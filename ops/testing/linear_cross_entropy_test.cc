#include "ops/core/products/linear_cross_entropy.h"

#include "ops/testing/cases.h"
#include "ops/testing/op_table.h"

namespace weft::testing {
WEFT_TEST_OPS(LinearCrossEntropy, linear_cross_entropy_ops());

TEST(LinearCrossEntropy, MeansWhatItsPrimitivesCompute) {
  for (const OpDef* op : linear_cross_entropy_ops())
    for (const Case& c : cases_of(*op)) {
      SCOPED_TRACE(c.label);
      EXPECT_TRUE(matches_reference(c, c.in, op->decompose(c.attrs, c.in)));
    }
}

TEST(LinearCrossEntropy, WorkspaceHoldsNeverAllLogits) {
  const Case c = [] {
    Case big;
    big.op = &linear_cross_entropy_grad_op;
    big.attrs = {{"ignore_index", int64_t{-100}}, {"label_smoothing", 0.0}, {"z_loss", 0.0}};
    return big;
  }();
  auto view = [](DType t, const Shape& s) { return StridedView{nullptr, t, s, contiguous_strides(s)}; };
  const int64_t n = 2048, d = 384, v = 32000;
  for (DType t : {kFloat32, kBFloat16}) {
    auto bytes = [&](int64_t rows) {
      const std::vector<StridedView> in = {view(t, {rows, d}), view(t, {v, d}), view(kInt64, {rows}),
                                           view(kFloat32, {rows})};
      return c.op->workspace(c.attrs, in, {});
    };
    EXPECT_LT(bytes(n), n * v * 4);
    EXPECT_EQ(bytes(8 * n), bytes(n));
  }
}
}  // namespace weft::testing
