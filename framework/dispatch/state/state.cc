#include "framework/dispatch/state/state.h"

namespace weft {

namespace internal {
thread_local constinit ThreadState thread_state;
}  // namespace internal

void commit_if(const Tensor& ok, std::source_location loc) {
  internal::LineScope here(loc);
  WEFT_CHECK_AS(kFailedPrecondition, internal::thread_state.step,
                "commit_if: called outside a step; need to be inside a function passed to compile()");
  WEFT_CHECK_AS(kFailedPrecondition, ok.defined(), "commit_if: got an undefined tensor; need a 0-d bool");
  WEFT_CHECK(ok.dtype() == kBool && ok.dim() == 0, "commit_if: got ", ok.type(), "; need a 0-d bool");
  internal::thread_state.step->ok = ok;
}

}  // namespace weft
