// One call on all ranks of a mesh, one after another in this thread: splits the operands, and compares the results with
// the whole.
#pragma once
#include <string>

#include "distributed/placement/rule.h"
#include "distributed/testing/rule_cases.h"

namespace weft::testing {

/// A rank's part. Pending axes get random terms, equal for all calls with this seed. Terms of a sum add up to the
/// whole, except for rounding; for max and min, one rank has the value, and the others have losing values.
Tensor part_of(const dist::Mesh& mesh, const dist::Spec& spec, const Tensor& whole, int rank, uint64_t seed);
/// This rank's part with its pending reductions done over all ranks' parts.
Tensor reduced(const dist::Mesh& mesh, const dist::Spec& spec, const std::vector<Tensor>& parts, int rank);

/// Whether a result agrees: integers in every bit, floats within 1e-12 (f64) of the largest value, `exact` ones in
/// every bit too. Returns a sentence about the difference, or "".
std::string difference(const Tensor& got, const Tensor& want, bool exact);
/// Compares the parts of all ranks with the whole result.
std::string difference(const dist::Mesh& mesh, const dist::Spec& spec, const std::vector<Tensor>& parts,
                       const Tensor& whole, bool exact);

/// The placements of operands and results of one call.
struct SplitCall {
  dist::FactorSplit split;
  std::vector<dist::Spec> in, out;
};
/// Runs local_op on every rank; returns the results by rank. Passes on its errors.
std::vector<std::vector<Tensor>> run_on_all(const dist::Mesh& mesh, const RuleCase& c, const dist::Rule& rule,
                                            const SplitCall& call);

}  // namespace weft::testing
