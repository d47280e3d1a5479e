#include "framework/dispatch/state.h"

namespace weft {

namespace internal {
thread_local constinit ThreadState thread_state;
}  // namespace internal

void commit_if(const Tensor& ok) {
  WEFT_CHECK_AS(kFailedPrecondition, internal::thread_state.step,
                "commit_if: called outside a step; need to be inside a function passed to compile()");
  WEFT_CHECK(ok.dtype() == kBool && ok.dim() == 0, "commit_if: got ", ok.type(), "; need a 0-d bool");
  internal::thread_state.step->ok = ok;
}

}  // namespace weft
