// One call on all ranks of a mesh, one after another in this thread: operands cut up, results compared with the whole.
#pragma once
#include <string>

#include "distributed/placement/rule.h"
#include "distributed/testing/rule_cases.h"

namespace weft::testing {

/// A rank's part; what is pending are random terms, equal on all calls with this seed (sums: they add up to the whole
/// but for rounding; max and min: one rank has the value, the others what loses).
Tensor part_of(const dist::Mesh& mesh, const dist::Spec& spec, const Tensor& whole, int rank, uint64_t seed);
/// What is pending of this rank's part, reduced over all ranks' parts.
Tensor reduced(const dist::Mesh& mesh, const dist::Spec& spec, const std::vector<Tensor>& parts, int rank);

/// Whether a result agrees: integers in every bit, floats within 1e-12 (f64) of the largest value, `exact` ones in
/// every bit too. A sentence saying how not, or "".
std::string difference(const Tensor& got, const Tensor& want, bool exact);
/// The parts of all ranks against the whole result.
std::string difference(const dist::Mesh& mesh, const dist::Spec& spec, const std::vector<Tensor>& parts,
                       const Tensor& whole, bool exact);

/// How operands and results of one call lie.
struct SplitCall {
  dist::Split split;
  std::vector<dist::Spec> in, out;
};
/// Runs local_op on every rank: results by rank. Throws what it throws.
std::vector<std::vector<Tensor>> run_on_all(const dist::Mesh& mesh, const RuleCase& c, const dist::Rule& rule,
                                            const SplitCall& call);

}  // namespace weft::testing
