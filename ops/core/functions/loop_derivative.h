// The derivative of a loop: the loop once more with the values that the derivative reads, a loop in the other
// direction, and products over all iterations.
#pragma once
#include <vector>

#include "framework/ir/graph.h"

namespace weft::internal {

struct LoopDerivative {
  /// The body with further results, which `backward` reads; null: it has them all.
  Ref<Graph> forward;
  /// An operand of `backward`, or of a product after it, as a stack over the iterations.
  struct Stack {
    enum From : uint8_t {
      kResult,    // a stacked result of the loop (of `forward`, if there is one)
      kOperand,   // a stacked operand of the loop
      kGradient,  // the gradient of a stacked result
      kPart,      // a stacked result of `backward` that is no gradient
    } from = kResult;
    int index = 0;
    friend bool operator==(const Stack&, const Stack&) = default;
  };
  /// A gradient of a shared operand as one product, or sum, over all iterations, and views of it.
  struct After {
    int shared = 0;
    std::vector<Stack> operands;
    std::vector<Node> nodes;  // each reads the result of the node before it
  };
  /// (d carry..., sums..., stacks..., shared...) -> (d carry..., sums..., d slices..., parts...).
  Ref<Graph> backward;
  std::vector<int> carry;     // carried operands that have a gradient
  std::vector<int> sums;      // shared operands whose gradient is summed in the carry of `backward`
  std::vector<Stack> stacks;  // stacked operands of `backward`
  std::vector<int> shared;    // shared operands that `backward` reads
  std::vector<int> slices;    // stacked operands whose gradient is a stacked result of `backward`
  std::vector<After> after;
};

/// `inputs`: by operand of the body, whether its gradient is needed. `results`: by stacked result, whether it has a
/// gradient.
LoopDerivative loop_derivative(const Graph& body, int carries, int stacked, std::vector<bool> inputs,
                               const std::vector<bool>& results);

}  // namespace weft::internal
