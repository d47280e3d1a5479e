#include "models/save/async.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <exception>

#include "framework/base/signals.h"
#include "framework/base/thread_pool.h"
#include "framework/dispatch/rank/flight.h"

namespace weft {
namespace {

// ioprio_set(2), which libc lacks. The class "none" follows the priority of the processor.
constexpr int kNone = 0, kIdle = 3 << 13;
void set_io_priority(int thread, int priority) {
  constexpr int kOneThread = 1;
  ::syscall(SYS_ioprio_set, kOneThread, thread, priority);
}

constexpr int kLowest = 19;

// The share of the time of one core that the writer works beside steps. A step divides its work over all cores in
// advance, and waits for the slowest core. A low priority of the writer does not protect the step: waiting threads of
// the step yield their cores, and the writer then keeps a core for some milliseconds.
constexpr double kShare = 0.1;

// Seconds of a core that this thread has used.
double used_seconds() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

}  // namespace

AsyncSave::AsyncSave(std::unique_ptr<SaveInParts> parts, Finish finish, Pace pace)
    : parts_(std::move(parts)),
      finish_(std::move(finish)),
      job_(parts_->job()),
      first_(parts_->is_first()),
      nice_(::getpriority(PRIO_PROCESS, 0)),
      pool_(pace == Pace::kFull ? &ThreadPool::current() : nullptr),
      waited_for_(pace == Pace::kFull) {
  if (!job_) next_ = Next::kEnd;
  start([this] {
    parts_->write(pool_ ? std::function<void()>() : [this] { pause(); });
    if (!job_) commit();
  });
}

AsyncSave::~AsyncSave() {
  if (complete()) return;
  try {
    if (!job_) wait();
    raise_priority();
    if (thread_.joinable()) thread_.join();
    if (job_ && std::uncaught_exceptions() == 0)
      internal::warn(parts_->what() + ": the files may be missing, because the program did not call wait()");
  } catch (const std::exception& e) {
    internal::warn(e.what());
  }
}

// Runs `part`, which does not throw, on a new thread.
void AsyncSave::start(const std::function<void()>& part) {
  busy_ = true;
  try {
    const internal::BlockedSignals blocked;
    thread_ = std::thread([this, part] {
      lower_priority();
      run(part);
    });
  } catch (const std::exception&) {  // the system has no more threads
    raise_priority();
    run(part);
  }
}

void AsyncSave::run(const std::function<void()>& part) noexcept {
  const auto begin = std::chrono::steady_clock::now();
  {
    std::optional<ThreadPool> own;
    const ScopedPool pool(pool_ ? *pool_ : own.emplace(1));
    part();
  }
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  {
    MutexLock lock(mutex_);
    id_ = 0;
  }
  busy_ = false;
}

void AsyncSave::lower_priority() {
  MutexLock lock(mutex_);
  id_ = static_cast<int>(::gettid());
  if (waited_for_) return;
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(id_), kLowest);
  set_io_priority(id_, kIdle);
}

// Some systems let only root raise the priority of the processor. The program waits, so its cores are free.
void AsyncSave::raise_priority() {
  MutexLock lock(mutex_);
  waited_for_ = true;
  raised_.notify_all();
  if (id_ == 0) return;
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(id_), nice_);
  set_io_priority(id_, kNone);
}

// Sleeps until the work since the last pause is kShare of the time, or until the program waits.
void AsyncSave::pause() {
  const double worked = used_seconds() - worked_;
  if (worked < 5e-5) return;
  {
    std::unique_lock<std::mutex> lock(mutex_.native());
    raised_.wait_for(lock, std::chrono::duration<double>(worked * (1 / kShare - 1)), [this] { return waited_for_; });
  }
  worked_ = used_seconds();
}

void AsyncSave::commit() noexcept {
  try {
    if (!job_) parts_->join();
    parts_->name_files();
    if (finish_) note_ = finish_();
  } catch (const Error& e) {
    error_ = e;
  } catch (const std::exception& e) {
    error_ = Error(Code::kInternal, e.what());
  }
}

void AsyncSave::advance() {
  WEFT_BUG_IF(complete(), "advance() of a complete save");
  if (thread_.joinable()) thread_.join();
  const Next part = std::exchange(next_, Next::kNothing);  // an error completes the save
  const auto result = [&] {
    if (error_) internal::fail(error_->code(), error_->what());
    return note_;
  };
  std::unique_ptr<SaveInParts> parts = std::move(parts_);  // at the end, its paths are free for the next save
  if (part == Next::kCommit) {
    parts->join();
    parts_ = std::move(parts);
    next_ = Next::kEnd;
    if (first_) start([this] { commit(); });
  } else {
    copy_seconds_ = parts->copy_seconds();
    note_ = job_ ? job_->on_all(parts->what(), result)[0] : result();
  }
}

void AsyncSave::wait() {
  if (complete()) return;
  const flight::HostPhase phase(flight::Phase::kCheckpoint);  // a diagnosis sees a slow writer
  raise_priority();
  // advance() has a deadline, and a disk may be slower.
  while (!complete()) {
    while (job_ && job_->any(parts_->what(), busy_)) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    advance();
  }
}

std::string save_now(std::unique_ptr<SaveInParts> parts, const std::function<std::string()>& folder,
                     AsyncSave::Finish finish) {
  parts->begin(folder);
  AsyncSave save(std::move(parts), std::move(finish), AsyncSave::Pace::kFull);
  save.wait();
  return save.note();
}

}  // namespace weft
