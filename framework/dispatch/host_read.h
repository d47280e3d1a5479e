// HostRead: values on their way to the host. The copies are queued behind the work that makes the values; the program
// goes on, queues more, and waits when it needs them.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "framework/tensor/tensor.h"

namespace weft {

struct QueuedRead;  // framework/dispatch/target.h

/// `values` as they are now, whatever is queued later; their memory may be let go at once.
///   HostRead loss({step(x, y)});     // queued
///   ...                              // the next step
///   loss.wait()[0].item<float>();    // waits for the first step alone
class HostRead {
 public:
  HostRead();
  explicit HostRead(const std::vector<Tensor>& values);
  HostRead(HostRead&&) noexcept;
  HostRead& operator=(HostRead&&) noexcept;
  ~HostRead();

  /// False where wait() would wait. Always true of values on the CPU.
  bool ready() const;
  /// The values on the CPU, in their order. Waits at the first call, and then throws what went wrong on the device.
  const std::vector<Tensor>& wait();

 private:
  std::vector<Tensor> values_;
  std::vector<std::unique_ptr<QueuedRead>> queued_;  // by device
};

}  // namespace weft
