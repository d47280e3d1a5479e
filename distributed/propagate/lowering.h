// Lowering: how a strategy computes the nodes that it claims. decide() asks for the placement of their operands and
// results, and local_op() for the nodes of one rank. Neither of them has code for a single strategy.
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
  Split split;
};

class Lowering {
 public:
  virtual ~Lowering() = default;
  /// Called with the split that moves the fewest bytes. The lowering may change it, to splits of factors that the rule
  /// does not allow, too. Returns true if it claims the node: emit() then computes it. Otherwise the general rules do,
  /// with the changed split. `note` is for the plan report.
  virtual bool claim(SplitNode& n, std::string& note) const = 0;
  /// Changes the placement that a claimed node needs for operand i, or gives result i; `spec` is that of the rule.
  virtual void place_operand(const SplitNode&, size_t, Spec&) const {}
  virtual void place_result(const SplitNode&, size_t, Spec&) const {}
  /// The results of a claimed node on one rank. Not called on ranks whose part of every result is empty: ranks that
  /// communicate here must be empty together.
  virtual std::vector<Tensor> emit(const LocalCall&) const { return {}; }
};

}  // namespace weft::dist
