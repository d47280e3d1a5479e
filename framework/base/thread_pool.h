// A pool of worker threads and parallel_for. Work is split statically: a thread gets the same part of the data in each
// loop, and results never depend on which thread ran a task. Tasks must not wait for one another.
#pragma once
#include <cstdint>
#include <memory>

#include "framework/base/function_ref.h"

namespace weft {

/// A fixed set of threads; the caller of run() is one of them. A rank may own a part of the threads (see ScopedPool).
class ThreadPool {
 public:
  /// A pool of `threads` >= 1: starts threads - 1 workers.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;
  /// Runs fn(0) ... fn(tasks - 1), split into size() contiguous ranges, and returns when all are done. Runs inline if
  /// called from inside a task or while another thread uses this pool. If tasks throw, rethrows the exception of the
  /// lowest task: a range stops at its first exception, the other ranges finish.
  void run(int64_t tasks, FunctionRef<void(int64_t)> fn);

  /// The pool that parallel_for uses on this thread: the innermost ScopedPool's, else the process's.
  static ThreadPool& current();

 private:
  friend void set_num_threads(int n);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Makes `pool` the current pool of this thread during its lifetime. A rank gets its part of the machine this way.
class ScopedPool {
 public:
  explicit ScopedPool(ThreadPool& pool);
  ~ScopedPool();
  ScopedPool(const ScopedPool&) = delete;
  ScopedPool& operator=(const ScopedPool&) = delete;

 private:
  ThreadPool* previous_;
};

/// Same as ThreadPool::current().run, except that a single task runs inline without touching the pool.
inline void parallel_for(int64_t tasks, FunctionRef<void(int64_t)> fn) {
  if (tasks == 1) return fn(0);
  if (tasks > 0) ThreadPool::current().run(tasks, fn);
}

/// Calls fn(begin, end) over [0, n) in chunks of `grain` (the last may be shorter). Chunks depend on n and grain only.
template <class F>
void parallel_chunks(int64_t n, int64_t grain, F&& fn) {
  if (n <= grain) {
    if (n > 0) fn(int64_t{0}, n);
    return;
  }
  parallel_for((n + grain - 1) / grain, [&](int64_t i) {
    int64_t begin = i * grain, end = begin + grain < n ? begin + grain : n;
    fn(begin, end);
  });
}

/// Threads of the current pool.
int num_threads();
/// Resizes the process's pool (initially switch WEFT_THREADS, 0 for all cores). Throws for n < 1 and inside a task.
void set_num_threads(int n);
/// The larger of the machine's cores and WEFT_THREADS at first use. Per-thread scratch is sized for this many threads.
int max_threads();

}  // namespace weft
