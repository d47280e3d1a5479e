// Values copied to pinned memory in the order of the GPU's stream, with an event after them: the host waits for that
// event only, not for work queued later.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "framework/cuda/gpu.h"
#include "framework/cuda/memory_target.h"
#include "framework/cuda/stream.h"

namespace weft::cuda {

class PinnedRead final : public QueuedRead {
 public:
  /// Queues the copies. `look`, if given, was queued before; it is judged once the copies have arrived.
  PinnedRead(Gpu& gpu, std::span<const StridedView> from, std::span<const StridedView> to,
             std::unique_ptr<QueuedLook> look);
  ~PinnedRead() override;

  bool done() const override { return event_->done(); }
  void wait() override;

 private:
  Gpu& gpu_;
  const std::vector<StridedView> to_;
  std::unique_ptr<QueuedLook> look_;
  std::unique_ptr<Event> event_;
  char* pinned_ = nullptr;
};

}  // namespace weft::cuda
