// StoredValue: the value of a cell that is in a file. A mesh reads only the shards of this process's ranks.
#pragma once
#include "framework/ir/cell.h"
#include "framework/tensor/part.h"

namespace weft {

struct StoredValue : RemoteValue {
  /// Writes a part of the value to `to`, row-major and in the dtype of the cell.
  virtual void read(const Cell& cell, const TensorPart& part, void* to) = 0;
  Tensor gather(const Cell& cell) final;
};

}  // namespace weft
