// The tracer: the activity of each thread, with times, as events of fixed size in one ring for each thread. Off, a
// place that may record an event costs one relaxed load and allocates nothing. On, it takes no lock, except at a
// thread's first event, which makes the thread's ring. When a ring is full, each event replaces the oldest one, and the
// trace counts the lost events. A thread's events outlive it until they are collected.
#pragma once
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/origin.h"

namespace weft {

/// The activity of a thread from begin_ns to end_ns. The slices of one track (rank, thread, on_device) nest.
/// Texts live as long as the process.
struct TraceEvent {
  enum TraceKind : uint8_t {
    kStep,        // a call of profile()'s function or of a compiled function; on a mesh also each rank's part of it
    kHost,        // a phase of the host: capture, binding, waiting for the device, commit
    kLaunch,      // a launch of a compiled step
    kTasks,       // a worker's part of a parallel loop; has the name of the launch or op that runs the loop
    kOp,          // an eager op
    kCollective,  // a rank starts a collective, waits for it, or both
    kArena,       // the end of a step's launches: nothing in its arena is live. No slice.
  };
  const char* name = "";
  const char* scope = "";  // "blocks.3/attn"; mesh dimensions of a collective, "dp,cp"
  const char* phase = "";  // phase of a launch: forward, backward or update
  SourceLine line;
  int64_t begin_ns = 0, end_ns = 0;  // times of one steady clock
  uint64_t flow = 0;                 // number of a collective, unique and equal on its ranks
  int64_t bytes = -1;   // live memory in the step's arena at a launch, as planned, or data of a collective's rank
  int32_t rank = -1;    // on a mesh; -1: outside
  int32_t thread = -1;  // index into Trace::threads
  TraceKind kind = kHost;
  bool failed = false;                 // it ended by an exception
  bool starts = false, waits = false;  // parts of a collective that the event includes
  bool on_device = false;              // times of a device that queues launches
};

namespace internal {

/// The events of one window of time, sorted by begin; where two begin together, the longer one is first.
struct Trace {
  std::vector<TraceEvent> events;
  std::vector<std::string> threads;  // "main", "worker 3", "thread 2"
  int64_t lost = 0;                  // events that newer ones replaced
};

/// The events that a thread's ring holds.
inline constexpr int64_t kTraceRing = int64_t{1} << 16;

/// The kinds of events recorded now: a bit for each kind of an open window.
extern std::atomic<uint32_t> traced_kinds;
inline bool traced(TraceEvent::TraceKind kind) {
  return (traced_kinds.load(std::memory_order_relaxed) >> kind & 1) != 0;
}
constexpr uint32_t bit_of(TraceEvent::TraceKind kind) { return uint32_t{1} << kind; }
inline constexpr uint32_t kAllKinds = 2 * bit_of(TraceEvent::kArena) - 1;

/// Adds an event of this thread, with times of now_ns() (framework/base/clock.h).
void record(const TraceEvent& event);

/// The windows of WEFT_TRACE and of a profile may be open at the same time.
enum class TraceWindow { kFile, kProfile };
/// Opens a window that records `kinds`. False if it is open.
bool open_trace(TraceWindow window, uint32_t kinds);
/// The events since the window was opened. Empty if it is not open.
Trace collect_trace(TraceWindow window);
void close_trace(TraceWindow window);

/// This thread as its events name it.
struct TracedThread {
  int32_t rank = -1;            // set by ScopedRank
  int32_t worker = 0;           // set by the pool whose worker it is
  const char* doing = "tasks";  // the launch or op that runs: the name of its parallel loops
};
extern thread_local constinit TracedThread traced_thread;

/// Records an event from its construction to its destruction, if its kind is traced when it is constructed.
class TraceScope {
 public:
  explicit TraceScope(TraceEvent::TraceKind kind, const char* name, SourceLine line = {}) {
    if (traced(kind)) begin(kind, name, line);
  }
  ~TraceScope() {
    if (event_) end();
  }
  TraceScope(const TraceScope&) = delete;
  /// The event, for more data; null if it is not traced.
  TraceEvent* event() { return event_ ? &*event_ : nullptr; }

 private:
  void begin(TraceEvent::TraceKind kind, const char* name, SourceLine line);
  void end();

  std::optional<TraceEvent> event_;
  int exceptions_ = 0;
  const char* before_ = nullptr;
};

/// Names the parallel loops of this thread during its lifetime.
class TraceName {
 public:
  TraceName() : before_(traced_thread.doing) {}
  ~TraceName() { traced_thread.doing = before_; }
  TraceName(const TraceName&) = delete;

 private:
  const char* const before_;
};

}  // namespace internal
}  // namespace weft
