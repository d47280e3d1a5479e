// Rule: how one call of an op may be split. It is derived from the dim map of the op. A split gives each factor of the
// iteration space a DimSpec; the specs of operands and results follow from it.
#pragma once
#include <vector>

#include "distributed/placement/spec.h"
#include "framework/ir/graph.h"
#include "framework/ir/op_def.h"

namespace weft::dist {

/// By factor of the rule's map.
using Split = std::vector<DimSpec>;

struct Rule {
  DimMap map;
  std::vector<bool> splittable;   // by factor
  std::vector<ReduceOp> reduces;  // by factor: if it is split, results without it are terms of this reduction
  bool in_terms = false;          // operand 0 must then consist of terms of a sum, too (index_add)
  uint32_t linear = 0;            // bit i: if operand i consists of terms of a sum, so does every result ...
  bool jointly = false;           // ... provided that all of these operands do
  // Factors of routing to experts: tokens, their rows, experts; -1: none. Rows are split with tokens or with experts.
  int tokens = -1, rows = -1, experts = -1;
  int offsets = -1;  // the operand with the first row of each expert: terms of a sum if rows are split
};

/// The rule of a node. Ops without a dim map cannot be split.
Rule rule_of(const Graph& g, const Node& n);
/// The factor of this name; a bug if there is none.
size_t factor(const Rule& rule, std::string_view name);
/// Every factor whole.
Split whole(const Rule& rule);
/// The split of the factors of one tensor with this spec. Factors that may not be split, and dims that are cut across
/// factors, stay whole.
Split split_of(const Mesh& mesh, const Rule& rule, const DimFactors& tensor, const Spec& spec);
/// The spec that operand i needs for this split.
Spec operand_spec(const Mesh& mesh, const Rule& rule, size_t i, const Split& split);
/// The spec of result i for this split: pending over axes that split factors which it lacks.
Spec result_spec(const Mesh& mesh, const Rule& rule, size_t i, const Split& split);
/// Splits rows with their tokens, or by expert where experts are split. `room`: the rows by expert that a rank takes,
/// in average shares; 0: all rows. Returns false if rows cannot be split this way.
bool complete(const Mesh& mesh, const Rule& rule, double room, Split& split);
/// Takes from `more` the splits of factors that are whole in `split`, as far as their axes are unused there.
void merge(const Mesh& mesh, const Split& more, Split& split);

}  // namespace weft::dist
