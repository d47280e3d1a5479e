// What the walk over a joint graph has to know of what comes later: where updates of cells are computed, and which
// products are only added up.
#pragma once
#include <optional>
#include <vector>

#include "distributed/propagate/decide.h"

namespace weft::dist {

/// Where a value that a cell's update is computed from, element by element, lies: the cell's home.
struct Home {
  Spec spec;
  DType dtype = kFloat32;
  bool each = false;  // CellPin::reduce_each
  int32_t cell = -1;
};
/// By node and result.
using Homes = std::vector<std::vector<std::optional<Home>>>;

/// From what cells are written with, back through what is computed element by element.
Homes find_homes(const Mesh& mesh, const Graph& g, const Pins& pins);

/// By node.
struct Sums {
  std::vector<bool> added_up;  // used in nothing but one sum of such products, after which they are reduced, once
  std::vector<bool> adds_up;   // that sum, or part of it
};
Sums find_sums(const Graph& g, const Pins& pins, const Homes& homes);

}  // namespace weft::dist
