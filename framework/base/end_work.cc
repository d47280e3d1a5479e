#include "framework/base/end_work.h"

#include <cstdlib>
#include <exception>
#include <utility>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/mutex.h"

namespace weft::internal {
namespace {

struct Left {
  Mutex mutex;
  std::vector<std::function<void()>> work;
};
Left& left() {
  static auto* l = new Left;
  return *l;
}

}  // namespace

void at_end(std::function<void()> work) {
  [[maybe_unused]] static const int registered = std::atexit([] {
    try {
      do_end_work();
    } catch (const std::exception& e) {
      warn(e.what());
    }
  });
  MutexLock lock(left().mutex);
  left().work.push_back(std::move(work));
}

void do_end_work() {
  std::vector<std::function<void()>> work;
  {
    MutexLock lock(left().mutex);
    work.swap(left().work);
  }
  std::exception_ptr first;
  for (const std::function<void()>& one : work) {
    try {
      one();
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace weft::internal
