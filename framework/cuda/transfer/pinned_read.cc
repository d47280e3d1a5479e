#include "framework/cuda/transfer/pinned_read.h"

#include <cstring>
#include <map>
#include <utility>

#include "framework/base/mutex.h"
#include "framework/cuda/libraries/driver_error.h"
#include "framework/cuda/transfer/pinned_pool.h"

namespace weft::cuda {
namespace {

// Each value starts on a cache line.
int64_t room_of(const StridedView& v) { return (v.nbytes() + 63) / 64 * 64; }

// Used events, by GPU, for reuse: making one is a driver call.
struct Events {
  Mutex mutex;
  std::map<int, std::vector<std::unique_ptr<Event>>> spare WEFT_GUARDED_BY(mutex);
};
Events& events() {
  static auto* e = new Events;
  return *e;
}
void forget_events() {
  MutexLock lock(events().mutex);
  events().spare.clear();
}

std::unique_ptr<Event> take_event(Gpu& gpu) {
  [[maybe_unused]] static const bool registered = (internal::at_driver_change(forget_events), true);
  {
    MutexLock lock(events().mutex);
    auto& spare = events().spare[gpu.index()];
    if (!spare.empty()) {
      std::unique_ptr<Event> e = std::move(spare.back());
      spare.pop_back();
      return e;
    }
  }
  return std::make_unique<Event>(gpu);
}

}  // namespace

PinnedRead::PinnedRead(Gpu& gpu, std::span<const StridedView> from, std::span<const StridedView> to,
                       std::unique_ptr<QueuedLook> look)
    : gpu_(gpu), to_(to.begin(), to.end()), look_(std::move(look)), event_(take_event(gpu)) {
  int64_t total = 0;
  for (const StridedView& v : to_) total += room_of(v);
  Stream& stream = gpu.stream();
  gpu.make_current();
  pinned_ = static_cast<char*>(gpu.pinned().take(total));
  try {
    int64_t at = 0;
    for (const StridedView& v : from) {
      if (const int64_t bytes = v.nbytes(); bytes > 0)
        check(
            driver().cuMemcpyDtoHAsync_v2(pinned_ + at, reinterpret_cast<CUdeviceptr>(v.data), bytes, stream.handle()),
            "copying ", bytes, " bytes from ", gpu.device());
      at += room_of(v);
    }
    event_->record(stream);
  } catch (...) {
    gpu.pinned().give_back(std::exchange(pinned_, nullptr));
    throw;
  }
}

PinnedRead::~PinnedRead() {
  if (!pinned_) return;
  try {
    gpu_.pinned().give_back(pinned_, gpu_.stream());
  } catch (...) {
    // The device is lost, and so is the block.
  }
}

void PinnedRead::wait() {
  event_->synchronize();
  int64_t at = 0;
  for (const StridedView& v : to_) {
    if (const int64_t bytes = v.nbytes(); bytes > 0) std::memcpy(v.data, pinned_ + at, bytes);
    at += room_of(v);
  }
  gpu_.pinned().give_back(std::exchange(pinned_, nullptr));
  {
    MutexLock lock(events().mutex);
    events().spare[gpu_.index()].push_back(std::move(event_));
  }
  if (look_) std::exchange(look_, nullptr)->judge();
}

}  // namespace weft::cuda
