// Checks of one rule on whole tensors: is every allowed split right, and is every right split allowed?
#pragma once
#include <string>
#include <vector>

#include "distributed/testing/rule_cases.h"

namespace weft::testing {

struct WrongReport {
  int tried = 0;
  std::vector<std::string> wrong;
};
/// Runs every split that the rule allows, over one axis of 2 and of 3 ranks and over pairs of axes, on each rank in
/// turn, and compares each rank's results with its part of the whole.
WrongReport wrong_splits(const OpDef& op, const weft::internal::Sample& sample);

struct MissingReport {
  int valid = 0;  // combinations of placements that give the right results
  std::vector<std::string> missing;
};
/// Runs the op itself on two ranks with every combination of operands: replicated, split or (floats only) terms of a
/// sum. Reports the combinations that give parts or terms of the result and that the rule lacks.
MissingReport missing_splits(const OpDef& op, const weft::internal::Sample& sample);

}  // namespace weft::testing
