// Waits of a few microseconds to seconds: a thread first yields its core, and then sleeps on a futex.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>

namespace weft::internal {

/// Gives the core to another thread. False: another thread used the core at this call or shortly before it, so the
/// caller should sleep. Linux 6.6 and later charges a time slice for each such yield, so a thread that repeats it on a
/// busy machine gets almost no core.
bool yield_core();

/// Sleeps until `word` is not `value` any more, a wake-up, or the end of `timeout`. Threads of other processes may use
/// the same word in shared memory.
void futex_wait(std::atomic<uint32_t>& word, uint32_t value,
                std::chrono::nanoseconds timeout = std::chrono::nanoseconds::max());
/// Wakes all threads of all processes that sleep on `word`.
void futex_wake(std::atomic<uint32_t>& word);

}  // namespace weft::internal
