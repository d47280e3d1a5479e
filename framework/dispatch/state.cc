#include "framework/dispatch/state.h"

#include <set>
#include <string>

#include "framework/base/mutex.h"

namespace weft {

namespace internal {
thread_local constinit ThreadState thread_state;

const char* intern(const std::string& s) {
  static Mutex mutex;
  static auto* all = new std::set<std::string>;
  MutexLock lock(mutex);
  return all->insert(s).first->c_str();
}
}  // namespace internal

void commit_if(const Tensor& ok) {
  WEFT_CHECK_AS(kFailedPrecondition, internal::thread_state.step,
                "commit_if: called outside a step; need to be inside a function passed to compile()");
  WEFT_CHECK(ok.dtype() == kBool && ok.dim() == 0, "commit_if: got ", ok.type(), "; need a 0-d bool");
  internal::thread_state.step->ok = ok;
}

NameScope::NameScope(std::string_view name)
    : name_(name), in_errors_(name_, /*path=*/false), saved_(internal::thread_state.scope) {
  if (!internal::thread_state.capture) return;  // only graphs show the joined names
  internal::thread_state.scope = internal::intern(*saved_ ? str_cat(saved_, "/", name) : name_);
}

}  // namespace weft
