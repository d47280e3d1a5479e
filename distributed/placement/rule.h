// Rule: how one call of an op may be split, derived from its dim map. A split gives each factor of the iteration space
// a DimSpec; the specs of operands and results follow.
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
  std::vector<ReduceOp> reduces;  // by factor: what results without it are, of a split one: terms of a sum, max, min
  bool in_terms = false;          // of such a split operand 0 has to be terms of a sum too (index_add)
  uint32_t linear = 0;            // bit i: if operand i is terms of a sum, so is every result ...
  bool jointly = false;           // ... if all of these are
  // Factors of routing to experts: tokens, their rows, experts; -1 where there are none. Rows are split with tokens, or
  // with experts.
  int tokens = -1, rows = -1, experts = -1;
  int offsets = -1;  // the operand that says where experts' rows begin: terms of a sum where rows are split
};

/// The rule of a node; ops without a dim map may not be split at all.
Rule rule_of(const Graph& g, const Node& n);
/// The factor of this name; a bug if there is none.
size_t factor(const Rule& rule, std::string_view name);
/// Every factor whole.
Split whole(const Rule& rule);
/// The split of the factors of one tensor that lies as `spec` says. Factors that may not be split, and dims that are
/// cut across factors, stay whole.
Split split_of(const Mesh& mesh, const Rule& rule, const DimFactors& tensor, const Spec& spec);
/// How operand i has to lie for this split.
Spec operand_spec(const Mesh& mesh, const Rule& rule, size_t i, const Split& split);
/// How result i then lies: pending where factors that it lacks are split.
Spec result_spec(const Mesh& mesh, const Rule& rule, size_t i, const Split& split);
/// Splits rows with their tokens, or by expert where experts are split; `room` is how many rows by expert a rank takes,
/// in average shares, 0: all there are. False if rows cannot be split so.
bool complete(const Mesh& mesh, const Rule& rule, double room, Split& split);
/// Takes over from `more` what is still whole in `split` and splits over axes that it does not use.
void merge(const Mesh& mesh, const Split& more, Split& split);

}  // namespace weft::dist
