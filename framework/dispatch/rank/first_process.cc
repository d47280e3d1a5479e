#include "framework/dispatch/rank/first_process.h"

#include <atomic>

namespace weft::internal {

static std::atomic<OnFirstProcess> current{nullptr};

void on_first_process(const std::string& what, const std::function<void()>& fn) {
  if (const OnFirstProcess how = current) return how(what, fn);
  fn();
}

void set_on_first_process(OnFirstProcess how) { current = how; }

}  // namespace weft::internal
