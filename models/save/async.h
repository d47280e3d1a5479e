// AsyncSave: a thread of each process writes the files of a SaveInParts. The program continues meanwhile, or waits.
//
// A save in a job has two parts. First all processes write, then the first process commits. The processes meet after
// each part: when none is busy(), all call advance(). A process alone has one part.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "framework/base/mutex.h"
#include "models/save/in_parts.h"

namespace weft {

class ThreadPool;

class AsyncSave {
 public:
  /// Later work, called on the thread of SaveInParts::is_first() when the files have their names. Returns a sentence
  /// about its failure; "": none.
  using Finish = std::function<std::string()>;
  /// kYield: the thread works a tenth of the time of one core, and yields the disk to the program, until the program
  /// waits for it.
  /// kFull: it uses the pool of the program's thread, which waits at once.
  enum class Pace : uint8_t { kYield, kFull };
  /// Starts the thread. begin() of `parts` has been called.
  explicit AsyncSave(std::unique_ptr<SaveInParts> parts, Finish finish = {}, Pace pace = Pace::kYield);
  AsyncSave(const AsyncSave&) = delete;
  /// A process alone completes the save, and prints its error as a warning. The files of an incomplete save in a job
  /// may be missing.
  ~AsyncSave();

  /// Whether the thread of this process is at work.
  bool busy() const { return busy_; }
  /// Whether the last part has ended, with or without an error.
  bool complete() const { return next_ == Next::kNothing; }
  /// Starts the next part, or completes the save. Throws the error of the part that has ended, in all processes. A
  /// collective; need no busy process.
  void advance();
  /// Waits for the end, and throws its error. A collective.
  void wait();
  /// Since complete(): the first process's sentence from Finish.
  const std::string& note() const { return note_; }
  /// Seconds that the thread of this process has worked, while it is not busy().
  double seconds() const { return seconds_; }
  /// Since complete(): as SaveInParts.
  double copy_seconds() const { return copy_seconds_; }

 private:
  enum class Next : uint8_t { kCommit, kEnd, kNothing };
  void start(const std::function<void()>& part);
  void run(const std::function<void()>& part) noexcept;
  void commit() noexcept;
  void lower_priority();
  void raise_priority();
  void pause();

  std::unique_ptr<SaveInParts> parts_;  // null since complete()
  const Finish finish_;
  internal::JobProcesses* const job_;
  const bool first_;
  const int nice_;          // the priority of the program's thread
  ThreadPool* const pool_;  // null with kYield
  Next next_ = Next::kCommit;
  std::string note_;
  std::optional<Error> error_;  // error of commit()
  double seconds_ = 0, copy_seconds_ = 0;
  double worked_ = 0;  // seconds of a core that the thread has used, when it paused last
  std::thread thread_;
  std::atomic<bool> busy_ = false;
  Mutex mutex_;
  int id_ WEFT_GUARDED_BY(mutex_) = 0;               // the kernel's number of the thread, while it is at work
  bool waited_for_ WEFT_GUARDED_BY(mutex_) = false;  // the program waits
  std::condition_variable raised_;                   // waited_for_ is set
};

/// Calls begin() and completes the save. Returns the sentence from `finish`, or throws an error. A collective.
std::string save_now(std::unique_ptr<SaveInParts> parts, const std::function<std::string()>& folder,
                     AsyncSave::Finish finish = {});

}  // namespace weft
