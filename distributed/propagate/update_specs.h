// Facts about later nodes that the forward walk of decide() needs: the placement of each cell's update, and the
// products that are only added to each other.
#pragma once
#include <optional>
#include <vector>

#include "distributed/propagate/decide.h"

namespace weft::dist {

/// The placement of a value from which the update of a cell follows elementwise: CellPin::update.
struct UpdateSpec {
  Spec spec;
  DType dtype = kFloat32;
  bool each = false;  // CellPin::reduce_each
  int32_t cell = -1;
};
/// Specs by node and result.
using UpdateSpecs = std::vector<std::vector<std::optional<UpdateSpec>>>;

/// Starts at the values that cells are written with and goes back through elementwise ops and views.
UpdateSpecs find_update_specs(const Mesh& mesh, const Graph& g, const Pins& pins);

/// Facts about sums of products, by node.
struct Sums {
  std::vector<bool>
      added_up;  // its only use is a sum of such products, or the sum of a token's rows, which is reduced once
  std::vector<bool> adds_up;  // it is this sum, or a part of it
};
Sums find_sums(const Graph& g, const Pins& pins, const UpdateSpecs& updates);

}  // namespace weft::dist
