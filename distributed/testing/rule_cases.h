// The calls with which the rules of all ops are tested: the samples of their records, and further calls that divide
// among ranks.
#pragma once
#include <string>
#include <vector>

#include "framework/ir/op_def.h"

namespace weft::testing {

/// The ops whose rules are tested with samples.
std::vector<const OpDef*> ruled_ops();
/// Why ruled_ops() excludes an op, or null.
const char* not_tried(const OpDef& op);

/// Why the search for missing rules excludes an op, or null.
const char* only_wrong(const OpDef& op);

struct RuleCase;
/// Why the rule may ignore the case that this operand of the call is terms of a sum, or null.
const char* excused(const RuleCase& c, size_t operand);

/// The op's samples without errors, and further calls with extents divisible by two and three.
std::vector<weft::internal::Sample> rule_samples(const OpDef& op);

/// One call as a graph of one node, with operands drawn by seed: data in f64.
struct RuleCase {
  Graph graph;
  int32_t node = 0;
  std::vector<Tensor> in, out;  // whole tensors; `out` is computed by the op itself
  const Node& call() const { return graph.node(node); }
};
RuleCase rule_case(const OpDef& op, const weft::internal::Sample& sample, uint64_t seed);

/// "softmax f64[4, 6] -> f64[4, 6] dim=1".
std::string describe(const RuleCase& c);

}  // namespace weft::testing
