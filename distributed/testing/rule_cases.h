// The calls on which the rules of all ops are tried: the samples of their records, and more that divide among ranks.
#pragma once
#include <string>
#include <vector>

#include "framework/ir/op_def.h"

namespace weft::testing {

/// The ops whose rules are tried by samples.
std::vector<const OpDef*> ruled_ops();
/// Why an op is not among them, or null.
const char* not_tried(const OpDef& op);

/// Why no missing rules are looked for, or null.
const char* only_wrong(const OpDef& op);

struct RuleCase;
/// Why the rule need not say what happens if this operand of the call is terms of a sum, or null.
const char* excused(const RuleCase& c, size_t operand);

/// Its samples without errors, and calls of our own with extents that two and three ranks divide.
std::vector<Sample> rule_samples(const OpDef& op);

/// One call as a graph of one node, with operands drawn by seed: data in f64.
struct RuleCase {
  Graph graph;
  int32_t node = 0;
  std::vector<Tensor> in, out;  // whole; out by the op itself
  const Node& call() const { return graph.node(node); }
};
RuleCase rule_case(const OpDef& op, const Sample& sample, uint64_t seed);

/// "softmax f64[4, 6] -> f64[4, 6] dim=1".
std::string describe(const RuleCase& c);

}  // namespace weft::testing
