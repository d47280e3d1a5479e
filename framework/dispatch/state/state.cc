#include "framework/dispatch/state/state.h"

namespace weft {

namespace internal {
thread_local constinit ThreadState thread_state;

DType autocast(DType t) {
  return thread_state.autocast && is_floating(t) && t != kFloat64 ? *thread_state.autocast : t;
}
DType autocast_f32(DType t) { return thread_state.autocast && is_16bit(t) ? kFloat32 : t; }
Tensor autocast(const Tensor& t) { return thread_state.autocast ? t.to(autocast(t.dtype())) : t; }
Tensor autocast_f32(const Tensor& t) { return thread_state.autocast ? t.to(autocast_f32(t.dtype())) : t; }
}  // namespace internal

Autocast::Autocast(std::optional<DType> dtype, std::source_location loc) : saved_(internal::thread_state.autocast) {
  internal::LineScope here(loc);
  WEFT_CHECK(!dtype || is_16bit(*dtype), "autocast: got ", *dtype, "; need bf16 or f16");
  internal::thread_state.autocast = dtype;
}

void commit_if(const Tensor& ok, std::source_location loc) {
  internal::LineScope here(loc);
  WEFT_CHECK_AS(kFailedPrecondition, internal::thread_state.step,
                "commit_if: called outside a step; need to be inside a function passed to compile()");
  WEFT_CHECK_AS(kFailedPrecondition, ok.defined(), "commit_if: got an undefined tensor; need a 0-d bool");
  WEFT_CHECK(ok.dtype() == kBool && ok.dim() == 0, "commit_if: got ", ok.type(), "; need a 0-d bool");
  internal::thread_state.step->ok = ok;
}

}  // namespace weft
