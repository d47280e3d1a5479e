// StoredValue: the value of a cell that is in a file. A mesh reads only the shards of this process's ranks.
#pragma once
#include "framework/ir/cell.h"
#include "framework/tensor/part.h"

namespace weft {

struct StoredValue : RemoteValue {
  /// Writes a part of the value to `to`, row-major and in the dtype of the cell. Throws DataLoss, naming the file, if
  /// the file is damaged there; the cell keeps this object.
  virtual void read(const Cell& cell, const TensorPart& part, void* to) = 0;
  Tensor gather(const Cell& cell) final;
};

namespace internal {

/// Replaces the value of a cell by a remote value, as CellHandle::set() replaces it by a tensor. Waits and throws as
/// CellOwner (cell_access.h). Defined in parameter.cc.
void set_remote(Cell& c, Ref<RemoteValue> value);

}  // namespace internal

}  // namespace weft
