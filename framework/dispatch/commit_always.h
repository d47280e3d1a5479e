// CommitAlways: the exception to commit_if, for state that must change in steps that are not committed.
#pragma once
#include "framework/dispatch/state/state.h"
#include "framework/tensor/tensor.h"

namespace weft {

/// During its lifetime, cells are written whatever commit_if was called with before: for a loss scale that falls when
/// gradients overflow, or a count of skipped steps. A commit_if called meanwhile takes effect afterwards.
class CommitAlways {
 public:
  CommitAlways();
  ~CommitAlways();
  CommitAlways(const CommitAlways&) = delete;

 private:
  Tensor saved_;
};

}  // namespace weft
