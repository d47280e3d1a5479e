#include "framework/dispatch/commit_always.h"

#include <utility>

namespace weft {

using internal::thread_state;

CommitAlways::CommitAlways() {
  if (thread_state.step) saved_ = std::exchange(thread_state.step->ok, Tensor());
}
CommitAlways::~CommitAlways() {
  if (thread_state.step && !thread_state.step->ok.defined()) thread_state.step->ok = saved_;
}

}  // namespace weft
