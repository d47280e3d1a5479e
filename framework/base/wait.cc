#include "framework/base/wait.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

#include "framework/base/clock.h"

namespace weft::internal {

// A yield without another thread takes about a microsecond, and a time slice of another thread some milliseconds.
constexpr int64_t kLongYield = 200'000;  // nanoseconds
// One time slice is lost in this time at most.
constexpr int64_t kBusyFor = 50'000'000;

bool yield_core() {
  thread_local int64_t busy_until = 0;
  const int64_t begin = now_ns();
  if (begin < busy_until) return false;
  ::sched_yield();
  const int64_t end = now_ns();
  if (end - begin < kLongYield) return true;
  busy_until = end + kBusyFor;
  return false;
}

void futex_wait(std::atomic<uint32_t>& word, uint32_t value, std::chrono::nanoseconds timeout) {
  if (timeout.count() <= 0) return;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  const timespec t{static_cast<time_t>(seconds.count()), static_cast<long>((timeout - seconds).count())};
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, value,
            timeout == std::chrono::nanoseconds::max() ? nullptr : &t, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace weft::internal
