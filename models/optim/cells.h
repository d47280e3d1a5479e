// The values of an optimiser's cells, by name: for checkpoints.
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "framework/dispatch/parameter.h"

namespace weft::internal {

/// Sets the cells from values of the same names and shapes. Throws before it changes anything, and names every entry
/// that is missing, unexpected or of another shape; `what` names the owner of the cells: "optimiser".
void set_cells(const std::vector<std::pair<std::string, CellHandle>>& cells,
               const std::map<std::string, Tensor>& values, const char* what);

}  // namespace weft::internal
