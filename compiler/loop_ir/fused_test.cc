// The cost of fused nodes.
#include "compiler/loop_ir/fused.h"

#include <gtest/gtest.h>

#include "framework/dispatch/capture.h"
#include "ops/core/core.h"

namespace weft::loop_ir {
namespace {

Cost cost_of(const TensorFn& fn, const std::vector<TensorType>& in) {
  const Ref<Graph> body = capture_graph(fn, in);
  std::vector<TensorType> out;
  for (Value v : body->outputs) out.push_back(body->type(v));
  return op_cost(fused_op, {{"body", body}}, in, out);
}

// The loss of a language model reads one score of each row.
TEST(FusedCost, SelectedElementsAreReadAlone) {
  const TensorType scores{kFloat32, Device::cpu(), {64, 1000}}, classes{kInt64, Device::cpu(), {64, 1}};
  const auto picked = [](std::span<const Tensor> x) { return std::vector{neg(gather(x[0], 1, x[1]))}; };
  EXPECT_EQ(cost_of(picked, {scores, classes}).bytes, 64 * 4 + 64 * 8 + 64 * 4);
  const auto both = [](std::span<const Tensor> x) { return std::vector{x[0] - gather(x[0], 1, x[1])}; };
  EXPECT_EQ(cost_of(both, {scores, classes}).bytes, 64000 * 4 + 64 * 8 + 64000 * 4);
  const auto part = [](std::span<const Tensor> x) { return std::vector{neg(x[0].slice(1, 0, 10))}; };
  EXPECT_EQ(cost_of(part, {scores}).bytes, 2 * 640 * 4);
  // Rows that are selected several times are not more than the operand.
  const TensorType many{kInt64, Device::cpu(), {1000}};
  const auto rows = [](std::span<const Tensor> x) { return std::vector{neg(index_select(x[0], 0, x[1]))}; };
  EXPECT_EQ(cost_of(rows, {scores, many}).bytes, 64000 * 4 + 1000 * 8 + 1000000 * 4);
}

}  // namespace
}  // namespace weft::loop_ir
