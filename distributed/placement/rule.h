// Rule: the ways to split one call of an op, derived from the dim map of the op. A split gives each factor of the
// iteration space a DimSpec; the specs of operands and results follow from it.
#pragma once
#include <vector>

#include "distributed/placement/spec.h"
#include "framework/ir/graph.h"
#include "framework/ir/op_def.h"

namespace weft::dist {

/// The split of each factor of a rule's map.
using FactorSplit = std::vector<DimSpec>;

struct Rule {
  DimMap map;
  std::vector<bool> splittable;   // index: factor
  std::vector<ReduceOp> reduces;  // factor -> if it is split, results without it are terms of this reduction
  bool in_terms = false;          // operand 0 must then also consist of terms of a sum (index_add)
  uint32_t linear = 0;            // bit i: if operand i consists of terms of a sum, so does every result ...
  bool jointly = false;           // ... provided that all these operands do
  // Factors of routing to experts: tokens, their rows, experts; -1: none. Rows are split like tokens or like experts.
  int tokens = -1, rows = -1, experts = -1;
  int offsets = -1;  // the operand with the first row of each expert: terms of a sum if rows are split
};

/// The rule of a node. Ops without a dim map cannot be split.
Rule rule_of(const Graph& g, const Node& n);
/// The factor of this name; a bug if there is none.
size_t factor(const Rule& rule, std::string_view name);
/// The split in which every factor is whole.
FactorSplit whole(const Rule& rule);
/// The split of the factors of one tensor with this spec. Factors that are not splittable, and dims whose split crosses
/// factors, stay whole.
FactorSplit split_of(const Mesh& mesh, const Rule& rule, const DimFactors& tensor, const Spec& spec);
/// The spec that operand i needs for this split.
Spec operand_spec(const Mesh& mesh, const Rule& rule, size_t i, const FactorSplit& split);
/// The spec of result i for this split: pending over the axes of split factors that the result lacks.
Spec result_spec(const Mesh& mesh, const Rule& rule, size_t i, const FactorSplit& split);
/// Splits rows like their tokens, or by expert if experts are split. `room`: the capacity of a rank for rows by expert,
/// in average shares; 0: all rows. Returns false if rows cannot be split this way.
bool complete(const Mesh& mesh, const Rule& rule, double room, FactorSplit& split);
/// Copies from `more` the splits of factors that are whole in `split`, as far as their axes are unused in `split`.
void merge(const Mesh& mesh, const FactorSplit& more, FactorSplit& split);

}  // namespace weft::dist
