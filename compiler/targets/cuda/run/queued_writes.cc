#include "compiler/targets/cuda/run/queued_writes.h"

#include <algorithm>

#include "framework/base/mutex.h"
#include "framework/base/str_cat.h"
#include "framework/cuda/device_fault.h"
#include "framework/cuda/libraries/driver_error.h"
#include "framework/cuda/stream.h"

namespace weft::cuda {

struct AllWrites {
  Mutex mutex;
  std::vector<QueuedWrites*> steps WEFT_GUARDED_BY(mutex);
  std::vector<std::pair<int, const QueuedWrites*>> last WEFT_GUARDED_BY(mutex);  // GPU and the step queued last on it

  static AllWrites& get() {
    static auto* all = new AllWrites;
    [[maybe_unused]] static const bool registered = (internal::at_device_fault([] { return all->tear(); }), true);
    return *all;
  }

  static bool lost(Gpu& gpu) {
    try {
      gpu.make_current();
    } catch (const Error&) {
      return true;
    }
    return is_device_fault(driver().cuStreamQuery(gpu.stream().handle()));
  }

  std::string tear() {
    static thread_local bool busy = false;  // a driver call in this function may report the fault again
    if (busy) return "";
    busy = true;
    std::string text;
    {
      MutexLock lock(mutex);
      for (QueuedWrites* step : steps)
        if (step->queued_ && lost(step->gpu_))
          for (const Ref<Cell>& c : *step->cells_) c->torn = true;
      for (const auto& [gpu, step] : last)
        if (lost(step->gpu_)) text += str_cat("; queued last there: ", step->what_);
    }
    busy = false;
    return text;
  }
};

QueuedWrites::QueuedWrites(Gpu& gpu, std::vector<Ref<Cell>> cells, std::string what)
    : gpu_(gpu), cells_(std::make_shared<const std::vector<Ref<Cell>>>(std::move(cells))), what_(std::move(what)) {
  AllWrites& all = AllWrites::get();
  MutexLock lock(all.mutex);
  all.steps.push_back(this);
}

QueuedWrites::~QueuedWrites() {
  AllWrites& all = AllWrites::get();
  MutexLock lock(all.mutex);
  std::erase(all.steps, this);
  std::erase_if(all.last, [&](const auto& entry) { return entry.second == this; });
}

void QueuedWrites::queued() {
  AllWrites& all = AllWrites::get();
  MutexLock lock(all.mutex);
  queued_ = true;
  for (auto& [gpu, step] : all.last)
    if (gpu == gpu_.index()) {
      step = this;
      return;
    }
  all.last.emplace_back(gpu_.index(), this);
}

}  // namespace weft::cuda
