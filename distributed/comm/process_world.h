// ProcessWorld: the ranks of several processes, over any transport.
#pragma once
#include <string>
#include <vector>

#include "framework/dispatch/communicator.h"

namespace weft::dist {

class ProcessWorld {
 public:
  virtual ~ProcessWorld() = default;
  /// The number of ranks.
  virtual int size() const = 0;
  /// Creates a communicator of the ranks `group`; returns the communicators of this process's ranks, in the order of
  /// `group`. All processes with ranks in `group` create the same communicators in the same order, and wait for each
  /// other.
  virtual std::vector<Ref<Communicator>> communicators(const std::string& name, const std::vector<int>& group) = 0;
  /// All communicators of this process, including later ones, fail with this cause. Does not wait.
  virtual void abort(const std::string& cause) = 0;
};

}  // namespace weft::dist
