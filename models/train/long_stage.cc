#include "models/train/long_stage.h"

#include <chrono>
#include <csignal>
#include <exception>
#include <utility>

#include "distributed/launch/processes.h"
#include "framework/base/clock.h"
#include "framework/base/error.h"
#include "framework/base/signals.h"
#include "framework/base/units.h"
#include "models/weights/progress.h"

namespace weft::train {

LongStage::LongStage(std::string what, int64_t first, std::function<void(const std::string& line)> say) {
  if (!say && !dist::is_first()) return;
  const auto work = [this, what = std::move(what), first, say = say ? std::move(say) : internal::warn] {
    const int64_t begin = internal::now_ns();
    weights::LineTimes times(begin, first);
    std::unique_lock<std::mutex> lock(mutex_);
    while (!over_) {
      const int64_t now = internal::now_ns();
      if (times.due(now)) {
        say(str_cat(what, ", for ", seconds_text(1e-9 * static_cast<double>(now - begin)), " so far"));
        continue;
      }
      changed_.wait_for(lock, std::chrono::nanoseconds(times.next() - now));
    }
  };
  const internal::BlockedSignals blocked;
  try {
    thread_ = std::thread(work);
  } catch (const std::exception&) {  // the system has no more threads: there are no lines
  }
}

LongStage::~LongStage() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

}  // namespace weft::train
