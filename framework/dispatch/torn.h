// Torn cells: a step failed while it wrote them, so they hold parts of an old and of a new value.
#pragma once

namespace weft {

struct Cell;

/// Throws DataLoss, with what makes the cell whole again, if the cell is torn.
void check_not_torn(const Cell& c);

namespace internal {
/// Whether the cell is the seed or the step of a random generator (generator.cc).
bool is_generator_state(const Cell& c);
}  // namespace internal

}  // namespace weft
