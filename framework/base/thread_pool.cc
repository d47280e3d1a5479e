#include "framework/base/thread_pool.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

#include "framework/base/actor.h"
#include "framework/base/error.h"
#include "framework/base/mutex.h"
#include "framework/base/origin.h"
#include "framework/base/switches.h"
#include "framework/base/tracer.h"
#include "framework/base/wait.h"

namespace weft {
namespace {

// Whether this thread runs a task of a pool, and the pool that its calls use: both are properties of a thread.
thread_local bool in_task = false;
thread_local ThreadPool* scoped_pool = nullptr;

// The number of calls of fork() between the first process and this one. A child has no threads of its parent: the
// parent's pools have one thread there, the caller, until set_num_threads() starts others.
std::atomic<int> forks{0};
int forks_now() {
  [[maybe_unused]] static const int registered =
      pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  return forks.load(std::memory_order_relaxed);
}

inline void pause() { __builtin_ia32_pause(); }
// About 3 microseconds: long enough to catch the next op of a chain, too short to starve other threads.
constexpr int kSpins = 64;
// After the spins, a thread yields its core this many times (about 0.2 ms) before it sleeps. On a virtual machine,
// waking a sleeping thread costs 50 microseconds, as much as a whole op of a small model.
constexpr int kYields = 500;

template <class Done>
void wait_awake(Done done) {
  for (int i = 0; i < kSpins; ++i) {
    if (done()) return;
    pause();
  }
  for (int i = 0; i < kYields && !done(); ++i)
    if (!internal::yield_core()) return;
}

// A counter on which threads sleep. (The wait of std::atomic yields the core before it sleeps.)
struct Bell {
  std::atomic<uint32_t> count{0};
  std::atomic<int> sleepers{0};

  void ring() {
    if (sleepers.load()) internal::futex_wake(count);
  }
  /// Returns when done(count).
  template <class Done>
  void wait(Done done) {
    wait_awake([&] { return done(count.load(std::memory_order_acquire)); });
    for (uint32_t now; !done(now = count.load(std::memory_order_acquire));) {
      sleepers.fetch_add(1);  // before the kernel compares the counter: ring() after a change sees this sleeper
      internal::futex_wait(count, now);
      sleepers.fetch_sub(1);
    }
  }
};

int threads_from_switch() {
  const long n = switch_int("WEFT_THREADS");
  return n ? static_cast<int>(n) : std::max(1u, std::thread::hardware_concurrency());
}

struct InTask {
  bool before = in_task;
  InTask() { in_task = true; }
  ~InTask() { in_task = before; }
};

}  // namespace

struct ThreadPool::Impl {
  struct alignas(64) Worker {
    Bell generation;  // incremented to wake the worker
    std::thread thread;
  };

  explicit Impl(int threads) { start(threads); }
  /// Whether the workers stayed in the parent of this process.
  bool forked() const { return made_at != forks_now(); }
  ~Impl() { stop(); }

  void start(int threads) {
    size = threads;
    workers = std::vector<Worker>(threads - 1);
    for (int i = 1; i < threads; ++i) try {
        workers[i - 1].thread = std::thread([this, i] { work(i); });
      } catch (const std::system_error& e) {
        stop();
        size = 1;
        internal::fail(Code::kResourceExhausted,
                       str_cat("threads: the system started ", i, " of ", threads, ": ", e.code().message(),
                               "; ask for fewer threads, or raise a limit (ulimit -u, ulimit -v)"));
      }
  }
  void stop() {
    quit.store(true, std::memory_order_relaxed);
    for (Worker& w : workers) {
      w.generation.count.fetch_add(1);
      w.generation.ring();
    }
    for (Worker& w : workers)
      if (w.thread.joinable()) w.thread.join();
    workers.clear();
    quit.store(false, std::memory_order_relaxed);
  }

  void work(int index) {
    in_task = true;
    internal::traced_thread.worker = index;
    Bell& generation = workers[index - 1].generation;
    uint32_t seen = 0;
    while (true) {
      generation.wait([seen](uint32_t now) { return now != seen; });
      ++seen;
      if (quit.load(std::memory_order_relaxed)) return;
      internal::origin = origin;
      internal::acting_for = actor;
      run_as_worker(index);
      if (pending.count.fetch_sub(1) == 1) pending.ring();
    }
  }

  void run_as_worker(int index) {
    if (!traced) return run_part(index);
    internal::traced_thread.rank = caller.rank;
    internal::traced_thread.doing = caller.doing;
    const internal::TraceScope part(TraceEvent::kTasks, caller.doing);
    run_part(index);
  }

  void run_part(int part) {
    int64_t i = tasks * part / parts;
    const int64_t end = tasks * (part + 1) / parts;
    try {
      for (; i < end; ++i) (*fn)(i);
    } catch (...) {
      MutexLock lock(error_mutex);
      if (!error || i < error_task) error = std::current_exception(), error_task = i;
    }
  }

  const int made_at = forks_now();
  Mutex busy;  // held by the thread whose job runs
  int size = 1;
  std::vector<Worker> workers;
  std::atomic<bool> quit{false};

  // The job. The caller writes it before it increments the generations; the workers that it wakes read it.
  const FunctionRef<void(int64_t)>* fn = nullptr;
  int64_t tasks = 0;
  int parts = 0;
  internal::Origin origin;  // origin of the caller, for errors
  const void* actor = nullptr;
  internal::TracedThread caller;
  bool traced = false;
  Bell pending;  // workers that have not finished the job
  Mutex error_mutex;
  std::exception_ptr error;
  int64_t error_task = 0;
};

ThreadPool::ThreadPool(int threads) {
  WEFT_CHECK(threads >= 1, "thread pool: got ", threads, " threads; need at least 1");
  impl_ = std::make_unique<Impl>(threads);
}
ThreadPool::~ThreadPool() {
  if (impl_->forked()) static_cast<void>(impl_.release());  // there is nothing to join
}
int ThreadPool::size() const { return impl_->forked() ? 1 : impl_->size; }

void ThreadPool::run(int64_t tasks, FunctionRef<void(int64_t)> fn) {
  Impl& p = *impl_;
  if (tasks <= 0) return;
  if (in_task || tasks == 1 || size() == 1 || !p.busy.try_lock()) {
    for (int64_t i = 0; i < tasks; ++i) fn(i);
    return;
  }
  std::exception_ptr error;
  {
    InTask mark;
    p.fn = &fn;
    p.tasks = tasks;
    p.parts = static_cast<int>(std::min<int64_t>(tasks, p.size));
    p.origin = internal::origin;
    p.actor = internal::actor();
    if ((p.traced = internal::traced(TraceEvent::kTasks))) p.caller = internal::traced_thread;
    p.pending.count.store(static_cast<uint32_t>(p.parts - 1), std::memory_order_relaxed);
    for (int i = 1; i < p.parts; ++i) {
      p.workers[i - 1].generation.count.fetch_add(1);
      p.workers[i - 1].generation.ring();
    }
    p.run_part(0);
    p.pending.wait([](uint32_t left) { return left == 0; });
    {
      MutexLock lock(p.error_mutex);
      error = std::move(p.error);
      p.error = nullptr;
    }
  }
  p.busy.unlock();
  if (error) std::rethrow_exception(error);
}

static ThreadPool& process_pool() {
  // Never destroyed: threads of the user may still compute while static objects are destroyed.
  static ThreadPool* pool = new ThreadPool(threads_from_switch());
  return *pool;
}

ThreadPool& ThreadPool::current() { return scoped_pool ? *scoped_pool : process_pool(); }

ScopedPool::ScopedPool(ThreadPool& pool) : previous_(scoped_pool) { scoped_pool = &pool; }
ScopedPool::~ScopedPool() { scoped_pool = previous_; }

int num_threads() { return ThreadPool::current().size(); }

void set_num_threads(int n) {
  WEFT_CHECK(n >= 1 && n <= 4096, "set_num_threads: got ", n, "; need 1 to 4096");
  WEFT_CHECK_AS(kFailedPrecondition, !in_task, "set_num_threads: called inside a parallel task");
  std::unique_ptr<ThreadPool::Impl>& impl = process_pool().impl_;
  if (impl->forked()) {
    static_cast<void>(impl.release());  // its lock may be held by a thread that this process does not have
    impl = std::make_unique<ThreadPool::Impl>(n);
    return;
  }
  ThreadPool::Impl& p = *impl;
  MutexLock lock(p.busy);
  if (n == p.size) return;
  p.stop();
  p.start(n);
}

int max_threads() {
  static const int n = std::max<int>(std::max(1u, std::thread::hardware_concurrency()), threads_from_switch());
  return n;
}

}  // namespace weft
