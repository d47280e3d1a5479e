#include "framework/base/tracer.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>

#include "framework/base/clock.h"
#include "framework/base/mutex.h"

namespace weft::internal {

std::atomic<uint32_t> traced_kinds{0};
thread_local constinit TracedThread traced_thread;

namespace {

constexpr int kWindows = 2;
constexpr uint64_t kSlots = kTraceRing + 1;  // slots of a ring: one more than it holds, which its thread may be writing
constexpr size_t kMostEnded = size_t{1} << 19;  // events of threads that have ended

using Word = uint64_t;
using EventWords = std::array<Word, sizeof(TraceEvent) / sizeof(Word)>;
static_assert(std::is_trivially_copyable_v<TraceEvent> && sizeof(EventWords) == sizeof(TraceEvent));

// Events by number, from `first` on.
struct Lane {
  std::string name;
  uint64_t first = 0;
  std::array<uint64_t, kWindows> start{};  // the number of a window's first event
  std::vector<TraceEvent> events;
};

// The newest events of one thread. Only that thread writes. A reader may read at any time: each word is atomic, and an
// event that was replaced meanwhile is recognised by `next`.
class EventRing {
 public:
  explicit EventRing(std::string name)
      : name_(std::move(name)), words_(new Word[kSlots * std::tuple_size_v<EventWords>]) {}

  void add(const TraceEvent& event) {
    EventWords words;
    std::memcpy(words.data(), &event, sizeof event);
    const uint64_t n = next_.load(std::memory_order_relaxed);
    Word* to = at(n);
    // The release order ensures that a reader of a new word sees next_ >= n.
    for (Word w : words) std::atomic_ref(*to++).store(w, std::memory_order_release);
    next_.store(n + 1, std::memory_order_release);
  }
  uint64_t next() const { return next_.load(std::memory_order_acquire); }

  Lane read() const {
    Lane lane{name_, 0, start, {}};
    const uint64_t end = next();
    lane.first = end > uint64_t{kTraceRing} ? end - uint64_t{kTraceRing} : 0;
    lane.first = std::max(lane.first, *std::min_element(start.begin(), start.end()));
    for (uint64_t n = lane.first; n < end; ++n) {
      EventWords words;
      const Word* from = at(n);
      for (Word& w : words) w = std::atomic_ref(const_cast<Word&>(*from++)).load(std::memory_order_acquire);
      std::memcpy(static_cast<void*>(&lane.events.emplace_back()), words.data(), sizeof words);
    }
    // The thread may have replaced some of these events meanwhile, or be replacing one.
    const uint64_t now = next(), whole = now > uint64_t{kTraceRing} ? now - uint64_t{kTraceRing} : 0;
    if (whole > lane.first) {
      const uint64_t torn = std::min<uint64_t>(whole - lane.first, lane.events.size());
      lane.events.erase(lane.events.begin(), lane.events.begin() + static_cast<int64_t>(torn));
      lane.first += torn;
    }
    return lane;
  }

  std::array<uint64_t, kWindows> start{};  // guarded by the mutex of EventRings

 private:
  Word* at(uint64_t n) const { return &words_[n % kSlots * std::tuple_size_v<EventWords>]; }

  const std::string name_;
  const std::unique_ptr<Word[]> words_;  // not initialised: memory that no event used is never touched
  std::atomic<uint64_t> next_{0};        // the number of the next event
};

struct EventRings {
  Mutex mutex;
  std::vector<std::unique_ptr<EventRing>> live WEFT_GUARDED_BY(mutex);  // rings of running threads
  std::deque<Lane> ended WEFT_GUARDED_BY(mutex);
  size_t ended_events WEFT_GUARDED_BY(mutex) = 0;
  std::array<uint32_t, kWindows> kinds WEFT_GUARDED_BY(mutex){};  // 0: closed
  std::array<int64_t, kWindows> lost WEFT_GUARDED_BY(mutex){};    // events of lanes that were dropped
  int threads WEFT_GUARDED_BY(mutex) = 0;

  void update() WEFT_REQUIRES(mutex) { traced_kinds.store(kinds[0] | kinds[1], std::memory_order_relaxed); }
  void drop_oldest() WEFT_REQUIRES(mutex) {
    const Lane& lane = ended.front();
    const uint64_t end = lane.first + lane.events.size();
    for (int w = 0; w < kWindows; ++w) lost[w] += static_cast<int64_t>(end - std::min(end, lane.start[w]));
    ended_events -= lane.events.size();
    ended.pop_front();
  }
};

EventRings& rings() {
  static auto* all = new EventRings;  // never destroyed: threads may record while static objects are destroyed
  return *all;
}

thread_local constinit EventRing* my_ring = nullptr;
thread_local constinit bool my_end = false;  // the thread's objects are being destroyed

// Keeps the events of a thread that ends, if a window is open.
struct AtEnd {
  ~AtEnd() {
    my_end = true;
    EventRings& all = rings();
    MutexLock lock(all.mutex);
    const auto mine = std::find_if(all.live.begin(), all.live.end(), [](const auto& r) { return r.get() == my_ring; });
    if (all.kinds[0] || all.kinds[1]) {
      all.ended.push_back((*mine)->read());
      all.ended_events += all.ended.back().events.size();
      while (all.ended_events > kMostEnded) all.drop_oldest();
    }
    all.live.erase(mine);
    my_ring = nullptr;
  }
};

EventRing* make_ring() {
  if (my_end) return nullptr;
  static thread_local AtEnd at_end;
  static_cast<void>(at_end);
  EventRings& all = rings();
  MutexLock lock(all.mutex);
  const int number = ++all.threads;
  std::string name = traced_thread.worker   ? str_cat("worker ", traced_thread.worker)
                     : gettid() == getpid() ? std::string("main")
                                            : str_cat("thread ", number);
  all.live.push_back(std::make_unique<EventRing>(std::move(name)));
  // A closed window begins with the ring's next event when it is opened.
  return my_ring = all.live.back().get();
}

}  // namespace

void record(const TraceEvent& event) {
  if (EventRing* ring = my_ring ? my_ring : make_ring()) ring->add(event);
}

bool open_trace(TraceWindow window, uint32_t kinds) {
  const auto w = static_cast<size_t>(window);
  EventRings& all = rings();
  MutexLock lock(all.mutex);
  if (all.kinds[w]) return false;
  if (!all.kinds[1 - w]) all.ended.clear(), all.ended_events = 0;
  for (auto& ring : all.live) {
    ring->start[w] = ring->next();
    if (!all.kinds[1 - w]) ring->start[1 - w] = ring->start[w];
  }
  for (Lane& lane : all.ended) lane.start[w] = lane.first + lane.events.size();
  all.lost[w] = 0;
  all.kinds[w] = kinds;
  all.update();
  return true;
}

void close_trace(TraceWindow window) {
  EventRings& all = rings();
  MutexLock lock(all.mutex);
  all.kinds[static_cast<size_t>(window)] = 0;
  all.update();
}

Trace collect_trace(TraceWindow window) {
  const auto w = static_cast<size_t>(window);
  Trace trace;
  EventRings& all = rings();
  MutexLock lock(all.mutex);
  if (!all.kinds[w]) return trace;
  trace.lost = all.lost[w];
  const auto add = [&](const Lane& lane) {
    const uint64_t end = lane.first + lane.events.size(), start = std::max(lane.first, lane.start[w]);
    if (lane.first > lane.start[w]) trace.lost += static_cast<int64_t>(lane.first - lane.start[w]);
    const auto thread = static_cast<int32_t>(trace.threads.size());
    for (uint64_t n = start; n < end; ++n) {
      const TraceEvent& e = lane.events[n - lane.first];
      if (!(all.kinds[w] & bit_of(e.kind))) continue;  // belongs to the other window
      trace.events.push_back(e);
      trace.events.back().thread = thread;
    }
    trace.threads.push_back(lane.name);
  };
  for (const Lane& lane : all.ended) add(lane);
  for (const auto& ring : all.live) add(ring->read());
  std::stable_sort(trace.events.begin(), trace.events.end(), [](const TraceEvent& a, const TraceEvent& b) {
    return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.end_ns > b.end_ns;
  });
  return trace;
}

void TraceScope::begin(TraceEvent::TraceKind kind, const char* name, SourceLine line) {
  event_.emplace();
  event_->kind = kind;
  event_->name = name;
  event_->line = line;
  event_->rank = traced_thread.rank;
  exceptions_ = std::uncaught_exceptions();
  before_ = traced_thread.doing;
  if (kind == TraceEvent::kOp) traced_thread.doing = name;
  event_->begin_ns = now_ns();
}

void TraceScope::end() {
  event_->end_ns = now_ns();
  event_->failed = std::uncaught_exceptions() > exceptions_;
  traced_thread.doing = before_;
  record(*event_);
}

}  // namespace weft::internal
