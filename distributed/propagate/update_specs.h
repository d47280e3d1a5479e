// Facts about later nodes that the forward walk of decide() needs: the placement of each cell's update, the products
// that are only added to each other, and the values whose readers need the sum of all ranks' terms.
#pragma once
#include <optional>
#include <vector>

#include "distributed/propagate/decide.h"

namespace weft::dist {

/// The placement of a value from which the update of a cell follows elementwise: CellPin::update.
struct UpdateSpec {
  Spec spec;
  DType dtype = kFloat32;
  bool each = false;  // CellPin::reduce_each, but not for terms of a gradient of one backward pass
  int32_t cell = -1;
};
/// Specs by node and result.
using UpdateSpecs = std::vector<std::vector<std::optional<UpdateSpec>>>;

/// Starts at the values that cells are written with and goes back through elementwise ops and views.
UpdateSpecs find_update_specs(const Mesh& mesh, const Graph& g, const Pins& pins);

/// A number of elements. One collective of at most this number takes less time than two smaller ones. A value of this
/// size becomes a term of a sum at no cost.
inline constexpr int64_t kFewNumbers = 4096;

/// Facts about sums of products, by node.
struct Sums {
  std::vector<bool>
      added_up;  // its only use is a sum of such products, or the sum of a token's rows, which is reduced once
  std::vector<bool> adds_up;  // it is this sum, or a part of it
};
Sums find_sums(const Graph& g, const Pins& pins, const UpdateSpecs& updates);

/// Whether a node is linear in operand i, so that from terms of a sum it computes terms of its result. Products are
/// not: a product of terms is as large as the product of the sum.
bool takes_terms(const Graph& g, const Node& n, size_t i);
/// Whether reverse mode made this node to add the gradients of several uses of one value. The sums of accumulate() are
/// not among these nodes: their operands are gradients of different parts of the batch.
bool adds_gradients(const Node& n);

/// The readers of a value.
struct Readers {
  int32_t only = -1;  // the node that alone reads it, once; -1: none, or several
  /// It is a result, or written to a cell; a reader takes no terms or broadcasts them; or its terms go through linear
  /// ops to several such values, which would each be reduced.
  bool need_sum = false;
  /// It has few elements, and no more than its readers' smaller results have: one reduction serves them all.
  bool together = false;
};
/// Readers by node and result.
std::vector<std::vector<Readers>> find_readers(const Graph& g);

}  // namespace weft::dist
