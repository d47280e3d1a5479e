// Values of cells that are elsewhere: StoredValue in a file, of which a mesh reads only the shards of this process's
// ranks; PartedValue as shards, of which each process saves its own.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/dispatch/parameter.h"
#include "framework/ir/cell.h"
#include "framework/tensor/part.h"

namespace weft {

struct StoredValue : RemoteValue {
  /// Writes a part of the value to `to`, row-major and in the dtype of the cell. Throws DataLoss, naming the file, if
  /// the file is damaged there; the cell keeps this object.
  virtual void read(const Cell& cell, const TensorPart& part, void* to) = 0;
  Tensor gather(const Cell& cell) final;
};

/// A part of a value in memory: row-major and of the dtype of the cell.
struct ValuePart {
  TensorPart part;
  Tensor value;
};

struct PartedValue : RemoteValue {
  struct Own {
    std::string placement;  // a text, equal in all processes of a job
    std::vector<ValuePart> parts;
  };
  /// The parts that this process saves: the processes of the job together have each element once. Where ranks have
  /// equal parts, `share` from 0 to less than 1 selects the rank. Nothing, if the value of the cell is newer. The
  /// caller owns the cell (CellOwner, CellsOwner). `each_host`: the processes of each host together have each element
  /// once. Throws FailedPrecondition if the ranks on this host lack an element.
  virtual std::optional<Own> own_parts(const Cell& cell, double share, bool each_host) const = 0;
};

namespace internal {

/// The cells in gate order, for a CellsOwner: while it owns them, no step of another thread is between their values.
/// Before, it makes the values of lazy cells if `make` is set. `call` is for errors. Defined in parameter.cc.
std::vector<Ref<Cell>> ready_cells(const std::vector<std::pair<std::string, CellHandle>>& cells, bool make,
                                   const char* call);

/// Before a call of this thread replaces the value of a cell: throws if the cell has a remote value and the check of
/// the job refuses this thread. `call` is for the error. Defined in parameter.cc.
void check_replacement(const Cell& c, const char* call);
/// Sets the check of the job; null: every thread may replace remote values. `what` is for the error.
void set_replacement_check(void (*check)(const std::string& what));

/// Replaces the value of a cell by a remote value, as CellHandle::set() replaces it by a tensor. Waits and throws as
/// CellOwner (cell_access.h). Defined in parameter.cc.
void set_remote(Cell& c, Ref<RemoteValue> value);

}  // namespace internal

}  // namespace weft
