// Random operands of the conformance suite, and the check of results against bounds.
#include <gtest/gtest.h>

#include <cmath>

#include "ops/attention/testing/conformance.h"
#include "ops/core/core.h"

namespace weft::testing {

RandomOperand::RandomOperand(DType type, const Shape& shape, Dice& dice) {
  std::vector<float> v(static_cast<size_t>(shape.numel()));
  for (float& x : v) x = static_cast<float>(dice.real(-1, 1));
  tensor = Tensor::from_vector<float>(v, shape).to(type);
  values = tensor.to(kFloat64).to_vector<double>();
}

void expect_within(const char* what, const Tensor& got, const Bounded& want) {
  const std::vector<double> g = got.to(kFloat64).contiguous().to_vector<double>();
  ASSERT_EQ(g.size(), want.value.size()) << what;
  for (size_t i = 0; i < g.size(); ++i) {
    const bool ok = std::isinf(want.value[i]) ? g[i] == want.value[i] : std::abs(g[i] - want.value[i]) <= want.bound[i];
    ASSERT_TRUE(ok) << what << "[" << i << "] is " << g[i] << ", want " << want.value[i] << " within " << want.bound[i];
  }
}

}  // namespace weft::testing
