// The cells that a GPU's steps write. When a kernel's failure is found on the GPU, even late, all of them are torn.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "framework/cuda/gpu.h"
#include "framework/ir/cell.h"

namespace weft::cuda {

/// Registers a step's cells, with a text that identifies the step, for the lifetime of this object.
class QueuedWrites {
 public:
  QueuedWrites(Gpu& gpu, std::vector<Ref<Cell>> cells, std::string what);
  ~QueuedWrites();
  QueuedWrites(const QueuedWrites&) = delete;

  /// Call when the step is queued.
  void queued();
  const std::shared_ptr<const std::vector<Ref<Cell>>>& cells() const { return cells_; }

 private:
  friend struct AllWrites;
  Gpu& gpu_;
  const std::shared_ptr<const std::vector<Ref<Cell>>> cells_;
  const std::string what_;
  bool queued_ = false;
};

}  // namespace weft::cuda
