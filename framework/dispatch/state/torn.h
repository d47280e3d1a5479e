// Torn cells: a step failed while it wrote them, so they hold parts of an old and of a new value. Values of cells for
// checkpoints.
#pragma once
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/ref.h"

namespace weft {

struct Cell;
class CellHandle;
class Tensor;

/// Throws DataLoss, with the remedy, if the cell is torn.
void check_not_torn(const Cell& c);
/// The text that an error of a step adds if cells are torn, else "": "; cells were already being written: cell 'w' is
/// torn: load a checkpoint before the next step, or set them".
std::string torn_text(std::span<const Ref<Cell>> cells);
/// The values by name, except torn cells, whose names go to `torn`. If `torn` is null, throws DataLoss with the names
/// of all torn cells.
std::map<std::string, Tensor> whole_values(const std::vector<std::pair<std::string, CellHandle>>& cells,
                                           std::vector<std::string>* torn);
/// The reason why the cell cannot accept this value of a checkpoint: "has shape [2], need [3]". Empty if it can: the
/// shapes are equal, and a cell of integers or bools has a dtype that holds all values of the other one.
std::string misfit(const CellHandle& cell, const Tensor& value);

namespace internal {
/// Whether the cell is the seed or the step of a random generator (generator.cc).
bool is_generator_state(const Cell& c);
}  // namespace internal

}  // namespace weft
