// HostRead: values on their way to the host. The copies are queued behind the work that makes the values; the program
// goes on, queues more, and waits when it needs them.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "framework/tensor/tensor.h"

namespace weft {

namespace internal {

/// Copies queued by a backend.
struct QueuedRead {
  virtual ~QueuedRead() = default;
  virtual bool done() const = 0;
  /// Waits, and fills the memory that was named. Throws what the device found wrong in work queued before the read.
  virtual void wait() = 0;
};
/// Queues copies of contiguous values of one device to contiguous memory of the host, filled by QueuedRead::wait().
using QueueRead = std::unique_ptr<QueuedRead> (*)(Device device, std::span<const StridedView> from,
                                                  std::span<const StridedView> to);
/// How a device type reads so; without, values are read when they are waited for.
void set_queue_read(DeviceType type, QueueRead queue);

}  // namespace internal

/// `values` as they are now, whatever is queued later; their memory may be let go at once.
///   HostRead loss({step(x, y)});     // queued
///   ...                              // the next step
///   loss.wait()[0].item<float>();    // waits for the first step alone
class HostRead {
 public:
  HostRead() = default;
  explicit HostRead(const std::vector<Tensor>& values);
  HostRead(HostRead&&) noexcept = default;
  HostRead& operator=(HostRead&&) noexcept = default;
  ~HostRead();

  /// False where wait() would wait. Always true of values on the CPU.
  bool ready() const;
  /// The values on the CPU, in their order. Waits at the first call, and then throws what went wrong on the device.
  const std::vector<Tensor>& wait();

 private:
  std::vector<Tensor> values_;
  std::vector<std::unique_ptr<internal::QueuedRead>> queued_;  // by device
};

}  // namespace weft
