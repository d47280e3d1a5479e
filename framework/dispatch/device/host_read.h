// HostRead: values on their way to the host. The copies are queued after the work that computes the values. The program
// continues, queues more work, and waits when it needs the values.
#pragma once
#include <memory>
#include <source_location>
#include <span>
#include <vector>

#include "framework/tensor/tensor.h"

namespace weft {

struct QueuedRead;  // framework/dispatch/device/target.h

/// Reads `values` as they are now, whatever is queued later; the caller may release their memory at once.
///   HostRead loss({step(x, y)});     // queued
///   ...                              // the next step
///   loss.wait()[0].item<float>();    // waits for the first step only
class HostRead {
 public:
  HostRead();
  explicit HostRead(const std::vector<Tensor>& values, std::source_location loc = std::source_location::current());
  HostRead(HostRead&&) noexcept;
  HostRead& operator=(HostRead&&) noexcept;
  ~HostRead();

  /// False if wait() would block. Always true for values on the CPU.
  bool ready() const;
  /// The values on the CPU, in order. The first call waits, and throws the errors of the device.
  const std::vector<Tensor>& wait();

 private:
  std::vector<Tensor> values_;
  std::vector<std::unique_ptr<QueuedRead>> queued_;  // one for each device that queues reads
};

}  // namespace weft
