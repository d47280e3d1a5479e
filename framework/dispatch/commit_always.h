// CommitAlways: the exception to commit_if, for state that has to know of steps that were not committed.
#pragma once
#include "framework/dispatch/state.h"
#include "framework/tensor/tensor.h"

namespace weft {

/// While it lives, cells are written whatever commit_if said before: a loss scale that falls when gradients overflow,
/// counts of steps left out. A commit_if called meanwhile holds afterwards.
class CommitAlways {
 public:
  CommitAlways();
  ~CommitAlways();
  CommitAlways(const CommitAlways&) = delete;

 private:
  Tensor saved_;
};

}  // namespace weft
