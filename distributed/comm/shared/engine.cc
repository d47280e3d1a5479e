#include "distributed/comm/shared/engine.h"

#include <algorithm>

#include "framework/base/thread_pool.h"
#include "framework/base/wait.h"

namespace weft::dist::shared {
namespace {

using Clock = std::chrono::steady_clock;

// Sleeping threads check again after this time, in case a process died before it could wake them.
constexpr auto kLongestSleep = std::chrono::milliseconds(100);
constexpr int kPolls = 64;  // polls before the thread yields its core, which the other rank may need

}  // namespace

void ring(const Places& places, int rank) {
  SegmentHeader& h = places.segments[rank]->header();
  // Sequentially consistent: either this thread sees that the other thread sleeps, or the other sees the new value.
  h.bell.fetch_add(1);
  if (h.sleepers.load()) weft::internal::futex_wake(h.bell);
  if (!h.wants_progress.load()) return;
  SegmentHeader& p = places.segments[h.progress_rank]->header();
  p.progress_bell.fetch_add(1);
  if (p.progress_sleeps.load()) weft::internal::futex_wake(p.progress_bell);
}

Engine::Engine(Places& places, int rank, std::chrono::nanoseconds spin, bool has_progress_thread)
    : places_(places),
      rank_(rank),
      spin_(spin),
      has_progress_thread_(has_progress_thread),
      heap_(*places.segments[rank]) {}

void Engine::add(SharedGroup* group) {
  Lock lock(*this);
  groups_.push_back(group);
}
void Engine::remove(SharedGroup* group) {
  Lock lock(*this);
  std::erase(groups_, group);
}

void Engine::activate(SharedGroup* group) {
  for (const Ref<SharedGroup>& g : active_)
    if (g.get() == group) return;
  active_.push_back(Ref<SharedGroup>(group));
}

std::pair<Ref<SharedGroup>, Ref<SharedOp>> Engine::progress() {
  for (size_t i = 0; i < active_.size();) {
    active_[i]->progress();
    if (active_[i]->idle()) {
      garbage_.push_back(std::move(active_[i]));
      active_[i] = std::move(active_.back());
      active_.pop_back();
    } else {
      ++i;
    }
  }
  for (const Ref<SharedGroup>& g : active_)
    if (Ref<SharedOp> op = g->to_copy()) return {g, std::move(op)};
  return {};
}

bool Engine::wait_until(const std::function<bool()>& stop, Work::Deadline deadline) {
  SegmentHeader& h = segment().header();
  {
    Lock lock(*this);
    ++waiters_;
    h.wants_progress.store(0, std::memory_order_relaxed);
  }
  struct Leave {
    Engine& engine;
    ~Leave() {
      Lock lock(engine);
      --engine.waiters_;
      engine.ask_for_progress();
    }
  } leave{*this};
  Clock::time_point sleep_at{};  // not set
  while (true) {
    const uint32_t seen = h.bell.load();
    std::pair<Ref<SharedGroup>, Ref<SharedOp>> work;
    {
      Lock lock(*this);
      work = progress();
      if (stop()) return true;
    }
    if (work.second) {
      const auto left = static_cast<int64_t>(work.second->boxes.size());
      SharedGroup& group = *work.first;
      SharedOp& op = *work.second;
      parallel_for(std::min<int64_t>(num_threads(), left), [&](int64_t) { group.copy(op); });
      sleep_at = {};
      continue;
    }
    for (int i = 0; i < kPolls && h.bell.load(std::memory_order_acquire) == seen; ++i) __builtin_ia32_pause();
    while (h.bell.load(std::memory_order_acquire) == seen) {
      const auto now = Clock::now();
      if (now >= deadline) return false;
      if (sleep_at == Clock::time_point{}) sleep_at = now + spin_;
      if (now < sleep_at && weft::internal::yield_core()) continue;
      h.sleepers.fetch_add(1);
      weft::internal::futex_wait(h.bell, seen, std::min<std::chrono::nanoseconds>(kLongestSleep, deadline - now));
      h.sleepers.fetch_sub(1);
      break;
    }
    if (h.bell.load() != seen) sleep_at = {};
    if (Clock::now() >= deadline) {
      Lock lock(*this);
      progress();
      return stop();
    }
  }
}

bool Engine::step() {
  std::pair<Ref<SharedGroup>, Ref<SharedOp>> work;
  {
    Lock lock(*this);
    if (waiters_ > 0) return false;
    work = progress();
  }
  if (work.second) work.first->copy(*work.second);
  return static_cast<bool>(work.second);
}

void Engine::ask_for_progress() {
  if (!has_progress_thread_ || waiters_ > 0) return;
  SegmentHeader& h = segment().header();
  const bool busy = std::any_of(active_.begin(), active_.end(), [](const Ref<SharedGroup>& g) { return g->busy(); });
  if (busy == static_cast<bool>(h.wants_progress.load(std::memory_order_relaxed)) && !busy) return;
  h.wants_progress.store(busy);
  if (!busy) return;
  SegmentHeader& p = places_.segments[h.progress_rank]->header();
  p.progress_bell.fetch_add(1);
  if (p.progress_sleeps.load()) weft::internal::futex_wake(p.progress_bell);
}

void Engine::end(int rank, const std::string& sentence) {
  Lock lock(*this);
  for (SharedGroup* g : groups_)
    if (g->has(rank)) g->fail(Error(Code::kAborted, sentence), nullptr);
  ring(places_, rank_);
}

void Engine::abort(const std::string& cause) {
  Lock lock(*this);
  for (SharedGroup* g : groups_) g->fail(Error(Code::kAborted, cause), nullptr);
  ring(places_, rank_);
}

void Engine::close() {
  Lock lock(*this);
  for (SharedGroup* g : groups_) g->retire_locked(true);
  for (Ref<SharedGroup>& g : active_) garbage_.push_back(std::move(g));
  active_.clear();
}

}  // namespace weft::dist::shared
