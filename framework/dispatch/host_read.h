// HostRead: values on their way to the host. The copies are queued behind the work that computes the values. The
// program continues, queues more work, and waits when it needs the values.
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
  /// Waits and fills the given memory. Throws the errors that the device found in work queued before the read.
  virtual void wait() = 0;
};
/// Queues copies of contiguous values of one device to contiguous host memory; QueuedRead::wait() fills it.
using QueueRead = std::unique_ptr<QueuedRead> (*)(Device device, std::span<const StridedView> from,
                                                  std::span<const StridedView> to);
/// Registers the queued read of a device type. Without one, values are read when they are waited for.
void set_queue_read(DeviceType type, QueueRead queue);

}  // namespace internal

/// Reads `values` as they are now, whatever is queued later; the caller may release their memory at once.
///   HostRead loss({step(x, y)});     // queued
///   ...                              // the next step
///   loss.wait()[0].item<float>();    // waits for the first step only
class HostRead {
 public:
  HostRead() = default;
  explicit HostRead(const std::vector<Tensor>& values);
  HostRead(HostRead&&) noexcept = default;
  HostRead& operator=(HostRead&&) noexcept = default;
  ~HostRead();

  /// False if wait() would block. Always true for values on the CPU.
  bool ready() const;
  /// The values on the CPU, in order. The first call waits, and throws the errors of the device.
  const std::vector<Tensor>& wait();

 private:
  std::vector<Tensor> values_;
  std::vector<std::unique_ptr<internal::QueuedRead>> queued_;  // by device
};

}  // namespace weft
