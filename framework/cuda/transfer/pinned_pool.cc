#include "framework/cuda/transfer/pinned_pool.h"

#include <bit>

#include "framework/base/error.h"
#include "framework/cuda/gpu.h"
#include "framework/cuda/graph_replay.h"
#include "framework/cuda/libraries/driver_error.h"

namespace weft::cuda {

PinnedPool::~PinnedPool() {
  for (auto& [p, bytes] : blocks_) ignore(driver().cuMemFreeHost(p));
}

void* PinnedPool::take(int64_t bytes) {
  const int64_t size = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(bytes, 4096))));
  WEFT_CHECK_AS(kFailedPrecondition, !thread_is_capturing(),
                "cuda: copying between host and device while a graph is captured; need to do so before or after");
  MutexLock lock(mutex_);
  settle();
  if (auto& list = free_[size]; !list.empty()) {
    void* p = list.back();
    list.pop_back();
    return p;
  }
  gpu_.make_current();
  void* p = nullptr;
  check(driver().cuMemHostAlloc(&p, size, kHostAllocPortable), "pinning ", bytes_text(size), " of host memory");
  blocks_[p] = size;
  return p;
}

void PinnedPool::give_back(void* p, Stream& stream) {
  MutexLock lock(mutex_);
  std::unique_ptr<Event> event;
  if (events_.empty()) {
    event = std::make_unique<Event>(gpu_);
  } else {
    event = std::move(events_.back());
    events_.pop_back();
  }
  event->record(stream);
  waiting_.push_back({p, std::move(event)});
}

void PinnedPool::give_back(void* p) {
  MutexLock lock(mutex_);
  free_[blocks_.at(p)].push_back(p);
}

void PinnedPool::settle() {
  while (!waiting_.empty() && waiting_.front().event->done()) {
    free_[blocks_.at(waiting_.front().block)].push_back(waiting_.front().block);
    events_.push_back(std::move(waiting_.front().event));
    waiting_.pop_front();
  }
}

void PinnedPool::empty_cache() {
  MutexLock lock(mutex_);
  gpu_.make_current();
  for (Waiting& w : waiting_) w.event->synchronize();
  settle();
  for (auto& [size, list] : free_) {
    for (void* p : list) {
      check(driver().cuMemFreeHost(p), "unpinning host memory");
      blocks_.erase(p);
    }
    list.clear();
  }
}

int64_t PinnedPool::reserved() const {
  MutexLock lock(mutex_);
  int64_t n = 0;
  for (auto& [p, bytes] : blocks_) n += bytes;
  return n;
}

}  // namespace weft::cuda
