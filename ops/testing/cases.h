// The cases of the op tests: every sample of a record in every dtype that its operands mean.
#pragma once
#include <string>
#include <vector>

#include "framework/ir/op_def.h"
#include "framework/testing/values.h"
#include "ops/testing/reference.h"

namespace weft::testing {

/// One call of an op: contiguous operands and attributes.
struct Case {
  const OpDef* op = nullptr;
  Attrs attrs;
  std::vector<Tensor> in;
  std::vector<bool> data;  // operands whose values are free (not indices, offsets, conditions)
  bool grad = true;        // the sample's `grad`
  std::string label;       // "sample 2, bf16"
};

/// A sample's call with its free operands in `dtype`. Operands are random but reproducible; integers follow the
/// sample's range. `seed` varies them.
Case make_case(const OpDef& op, const weft::internal::Sample& sample, DType dtype, uint64_t seed);

/// All calls of an op that are not error samples: f32, f64, bf16, f16 for floating operands, and the integer dtypes
/// that type inference accepts in their place.
std::vector<Case> cases_of(const OpDef& op);
/// The same in one floating dtype, without samples that have no floating operands.
std::vector<Case> cases_of(const OpDef& op, DType dtype);
/// Calls that are large enough to run on several threads.
std::vector<Case> large_cases_of(const OpDef& op);

/// Calls the op.
std::vector<Tensor> run(const Case& c, const std::vector<Tensor>& in);
/// The result types by type inference.
Types infer(const Case& c, const std::vector<Tensor>& in);
/// Checks results against the op's reference.
::testing::AssertionResult matches_reference(const Case& c, const std::vector<Tensor>& in,
                                             const std::vector<Tensor>& out);

}  // namespace weft::testing
