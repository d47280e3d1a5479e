// The composites' test table. Each row has a function, its operands, an independent reference in extended precision,
// and how many roundings (relative to the largest result) a correct evaluation may make. All checks follow from it.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "framework/dispatch/capture.h"
#include "framework/testing/values.h"

namespace weft::testing {

using Reals = std::vector<Real>;

struct Operand {
  Shape shape;
  DType dtype = kFloat32;  // f32 means f64, f32, bf16 and f16
  double lo = -2, hi = 2;
};

struct CompositeRow {
  std::string name;
  std::vector<Operand> in;
  std::function<Tensor(std::span<const Tensor>)> fn;
  std::function<Reals(const std::vector<Reals>&)> reference;
  double roundings = 16;
  bool second = true;       // check second derivatives too
  bool wide = false;        // the result of 16-bit operands is f32 (losses)
  Real magnitude = 0;       // largest intermediate value, if larger than the largest result
  int stored = 0;           // intermediate roundings to the operands' dtype, besides the last one
  DType least = kBFloat16;  // the result is computed in at most this dtype for any operands: f32 for rope's tables
};
void PrintTo(const CompositeRow& row, std::ostream* out);

class Composite : public ::testing::TestWithParam<CompositeRow> {};

/// Row i of a row-major matrix with `columns` columns.
inline Reals row_of(const Reals& v, int64_t i, int64_t columns) {
  return {v.begin() + i * columns, v.begin() + (i + 1) * columns};
}

/// References of elementwise functions of one operand, and of two of equal shape.
inline std::function<Reals(const std::vector<Reals>&)> each(Real (*f)(Real)) {
  return [f](const std::vector<Reals>& in) {
    Reals y;
    for (Real x : in[0]) y.push_back(f(x));
    return y;
  };
}
inline std::function<Reals(const std::vector<Reals>&)> each(Real (*f)(Real, Real)) {
  return [f](const std::vector<Reals>& in) {
    Reals y;
    for (size_t i = 0; i < in[0].size(); ++i) y.push_back(f(in[0][i], in[1][i]));
    return y;
  };
}

/// Checks the elements of a tensor exactly; NaN equals NaN.
inline void expect_values(const Tensor& t, const std::vector<double>& want) {
  const std::vector<double> got = t.to_vector<double>();
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_TRUE(got[i] == want[i] || (got[i] != got[i] && want[i] != want[i]))
        << "element " << i << ": got " << got[i] << ", need " << want[i];
}

#define WEFT_TEST_COMPOSITES(Family, ...)                                       \
  INSTANTIATE_TEST_SUITE_P(Family, Composite, ::testing::ValuesIn(__VA_ARGS__), \
                           [](const auto& info) { return info.param.name; })

}  // namespace weft::testing
