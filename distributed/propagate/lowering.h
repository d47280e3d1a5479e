// Lowering: how a strategy computes the nodes that it claims. decide() asks for the placement of their operands and
// results, and local_op() for the nodes of one rank. Neither function has code for a particular strategy.
#pragma once
#include <string>

#include "distributed/placement/rule.h"

namespace weft::dist {

struct LocalCall;  // local_op.h

/// A node and its split, by factor of its rule.
struct SplitNode {
  const Mesh& mesh;
  const Node& node;
  const Rule& rule;
  FactorSplit split;
};

class Lowering {
 public:
  virtual ~Lowering() = default;
  /// Called with the split that moves the fewest bytes. The lowering may change it, even to splits that the rule does
  /// not allow. Returns true if it claims the node: emit() then computes the node. Otherwise the general rules compute
  /// it, with the changed split. `note` is for the plan report.
  virtual bool claim(SplitNode& n, std::string& note) const = 0;
  /// Change the placement that a claimed node needs for operand i or gives to result i; `spec` is the rule's placement.
  virtual void place_operand(const SplitNode&, size_t, Spec&) const {}
  virtual void place_result(const SplitNode&, size_t, Spec&) const {}
  /// The results of a claimed node on one rank. Not called on a rank whose part of every result is empty: either all
  /// ranks that communicate here are empty, or none is.
  virtual std::vector<Tensor> emit(const LocalCall&) const { return {}; }
};

}  // namespace weft::dist
