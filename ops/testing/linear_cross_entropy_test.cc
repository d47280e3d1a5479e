#include "ops/core/products/linear_cross_entropy.h"

#include <cmath>

#include "framework/dispatch/dispatch.h"
#include "ops/core/creation.h"
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

// Logits that are equal and huge: even probabilities, by the kernel and by its primitives.
TEST(LinearCrossEntropy, EqualLogitsOfAnySize) {
  for (double size : {1., 1e5, 1e15}) {
    const Tensor x = full({3, 2}, -size), w = full({4, 2}, size),
                 targets = Tensor::from_vector<int64_t>({0, 1, 3}, {3}), g = ones({3});
    const Attrs attrs{{"ignore_index", int64_t{-100}}, {"label_smoothing", 0.0}, {"z_loss", 0.0}};
    const std::vector<Tensor> in{x, w, targets, g};
    for (const std::vector<Tensor>& got : {dispatch_multi(linear_cross_entropy_grad_op, internal::pointers(in), attrs),
                                           linear_cross_entropy_grad_op.decompose(attrs, in)}) {
      for (float loss : got[0].to_vector<float>()) EXPECT_NEAR(loss, std::log(4.0), 4 * 0x1p-23) << size;
      // dl = p - onehot, so dw[v] = x (rows / 4 - rows with target v).
      const std::vector<float> dw = got[2].to_vector<float>(), of_class{-0.25, -0.25, 0.75, -0.25};
      for (size_t i = 0; i < dw.size(); ++i) EXPECT_NEAR(dw[i], -size * of_class[i / 2], size * 16 * 0x1p-24) << i;
    }
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
