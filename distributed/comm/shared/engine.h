// The engine of one rank: its communicators with collectives under way, and how its threads wait for other processes.
// Every event that a rank may wait for changes the bell of its segment. A thread reads the bell and advances its
// collectives. If it could advance none, it waits until the bell changes: first it polls, then it sleeps.
#pragma once
#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "distributed/comm/shared/group.h"
#include "distributed/comm/shared/heap.h"
#include "framework/base/mutex.h"

namespace weft::dist::shared {

/// The part of the world that an engine reads.
struct Places {
  std::vector<Segment*> segments;        // index: rank
  std::vector<bool> local;               // rank -> whether it is in this process
  std::vector<std::atomic<bool>> ended;  // rank -> whether its process has ended
  std::vector<std::string> endings;      // rank -> the error message; set before `ended`
  std::atomic<bool> aborted{false};      // the world has failed
  std::string cause;                     // why; set before `aborted`
  int64_t piece_bytes;                   // the largest piece of an operand that passes through shared memory
  Places(int size, int64_t piece) : segments(size), local(size), ended(size), endings(size), piece_bytes(piece) {}
};

class Engine {
 public:
  Engine(Places& places, int rank, std::chrono::nanoseconds spin, bool has_progress_thread);

  int rank() const { return rank_; }
  Places& places() const { return places_; }
  Segment& segment() const { return *places_.segments[rank_]; }
  SharedHeap& heap() { return heap_; }

  /// Holds the engine's lock; frees unused groups after it releases the lock.
  class Lock {
   public:
    explicit Lock(Engine& e) : engine_(e), lock_(e.mutex_.native()) {}
    ~Lock() { garbage_.swap(engine_.garbage_); }

   private:
    Engine& engine_;
    std::vector<Ref<SharedGroup>> garbage_;  // destroyed after lock_
    std::unique_lock<std::mutex> lock_;
  };

  void add(SharedGroup* group);     // locks
  void remove(SharedGroup* group);  // locks
  /// Marks a group as having collectives under way. Needs the lock.
  void activate(SharedGroup* group);
  /// Advances all groups; returns an op with boxes to copy, and its group. Needs the lock.
  std::pair<Ref<SharedGroup>, Ref<SharedOp>> progress();
  /// Waits until stop(), called with the lock held after each progress(), returns true; false at the deadline.
  /// Meanwhile the thread copies boxes; with `parallel`, all threads of its pool do.
  bool wait_until(const std::function<bool()>& stop, Work::Deadline deadline);
  /// For the progress thread: advances, and copies boxes of one op; false if there was nothing to copy.
  bool step();
  /// Asks for the progress thread if collectives are under way and no thread of this rank waits. The caller holds the
  /// lock.
  void ask_for_progress();
  /// A rank's process has ended: all groups with this rank fail.
  void end(int rank, const std::string& sentence);  // locks
  /// All groups fail.
  void abort(const std::string& cause);  // locks
  /// Announces that this rank starts no more collectives; drops all groups.
  void close();  // locks

 private:
  Places& places_;
  const int rank_;
  const std::chrono::nanoseconds spin_;
  const bool has_progress_thread_;
  SharedHeap heap_;
  Mutex mutex_;
  std::vector<SharedGroup*> groups_;
  std::vector<Ref<SharedGroup>> active_, garbage_;
  int waiters_ = 0;
};

/// Wakes the threads of a rank that wait for an event.
void ring(const Places& places, int rank);

}  // namespace weft::dist::shared
