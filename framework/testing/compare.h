// Compares tensors in tests: exactly, by bits, or within a bound that is derived from dtype and operation, never
// guessed.
#pragma once
#include <gtest/gtest.h>

#include <vector>

#include "framework/base/testing/error_of.h"  // for tests that compare both
#include "framework/tensor/tensor.h"

namespace weft::testing {

/// The arithmetic of references: exact for every 64-bit integer, eleven bits more than f64.
using Real = long double;

/// Unit roundoff: half the distance from 1 to the next value (2^-24 for f32); 0 for integers and bool.
double unit_roundoff(DType t);
/// Half the smallest positive (denormal) value: the rounding error where relative error does not apply.
double tiny_roundoff(DType t);
/// The largest finite value.
double max_finite(DType t);

/// `value` rounded to dtype t (floats to nearest even, integers truncated).
Real rounded(Real value, DType t);

/// The elements of a concrete tensor in row-major order, exactly.
std::vector<Real> to_reals(const Tensor& t);
/// A contiguous tensor of these values, each rounded to the type's dtype.
Tensor from_reals(const std::vector<Real>& values, const TensorType& type);

/// Checks for the same type and the same bits in every element; NaNs equal each other. Names the first difference.
::testing::AssertionResult same_bits(const Tensor& a, const Tensor& b);
/// Checks |got - want| <= bound for each element; infinities must agree, and NaN only with NaN. Names the worst element
/// and its distance in units of the bound and in ulp.
::testing::AssertionResult within(const Tensor& got, const std::vector<Real>& want, const std::vector<Real>& bound);
/// As within(). The bound is `roundings` times the unit roundoff of `computed_in`, relative to `want`'s largest
/// magnitude, plus one rounding to got's dtype.
::testing::AssertionResult close(const Tensor& got, const std::vector<Real>& want, DType computed_in, double roundings);
/// Compares two tensors computed in different orders, as above, with b as the reference.
::testing::AssertionResult close(const Tensor& a, const Tensor& b, DType computed_in, double roundings);

}  // namespace weft::testing
