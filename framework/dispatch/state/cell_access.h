// Access to a cell that other threads may use at the same time (framework/ir/cell_gate.h).
#pragma once
#include <span>
#include <string>
#include <vector>

#include "framework/ir/cell.h"

namespace weft::internal {

/// Throws FailedPrecondition: `call` uses the cell inside the step that owns it.
[[noreturn]] void fail_inside(const Cell& c, const char* call);

/// "'name'", or "a parameter f32[2, 3]" for a cell without a name.
std::string label(const Cell& c);

/// Until the end of the scope, handles of the cell can be copied; it must end at once. Waits for the commit of a step
/// of another thread that writes the cell. Throws FailedPrecondition, naming `call`, inside that step.
class CellReader {
 public:
  CellReader(const Cell& c, const char* call);
  ~CellReader() { cell_.gate.leave(); }
  CellReader(const CellReader&) = delete;

 private:
  const Cell& cell_;
};

/// Until the end of the scope, this thread alone uses the cell. Waits and throws as CellReader.
class CellOwner {
 public:
  CellOwner(const Cell& c, const char* call);
  ~CellOwner() { cell_.gate.release(); }
  CellOwner(const CellOwner&) = delete;

 private:
  const Cell& cell_;
};

/// The value of a cell that this thread owns, made or gathered if it does not exist yet. Not recorded for grad().
/// Defined in parameter.cc.
Tensor owned_value(Cell& c);

/// A handle to the cell's value, which keeps it unchanged; undefined for a cell without a value.
Tensor held_value(const Cell& c, const char* call);

/// Whether a step that failed has torn the cell.
bool is_torn(const Cell& c);

/// The same cells in the order in which a thread takes several.
std::vector<Ref<Cell>> in_gate_order(std::vector<Ref<Cell>> cells);

/// Owns several cells, which are in gate order and outlive it, until the end of the scope.
class CellsOwner {
 public:
  CellsOwner(std::span<const Ref<Cell>> cells, const char* call);
  ~CellsOwner();
  CellsOwner(const CellsOwner&) = delete;

 private:
  std::span<const Ref<Cell>> cells_;
};

}  // namespace weft::internal
