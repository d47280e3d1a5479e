// ProcessWorld: the ranks of several processes, by whatever transport connects them.
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
  /// Creates a communicator of the ranks `group`; returns those of this process's ranks, in the order of `group`. All
  /// processes with ranks in it create the same communicators in the same order. Returns when all have done so.
  virtual std::vector<Ref<Communicator>> communicators(const std::string& name, const std::vector<int>& group) = 0;
  /// All communicators of this process fail with this cause, those that are made later too. Waits for nothing.
  virtual void abort(const std::string& cause) = 0;
};

}  // namespace weft::dist
