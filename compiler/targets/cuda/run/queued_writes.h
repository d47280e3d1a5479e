// Which cells the steps of a GPU write: all of them are torn when a kernel is found to have failed there, however late.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "framework/cuda/gpu.h"
#include "framework/ir/cell.h"

namespace weft::cuda {

/// A step, for as long as it lives: its cells, and a line that says which step it is.
class QueuedWrites {
 public:
  QueuedWrites(Gpu& gpu, std::vector<Ref<Cell>> cells, std::string what);
  ~QueuedWrites();
  QueuedWrites(const QueuedWrites&) = delete;

  /// The step was queued.
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
