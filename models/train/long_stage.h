// LongStage: lines about a stage of a run that takes long, such as the plan of a deep model, for a person who waits.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace weft::train {

class LongStage {
 public:
  /// Until the destructor, a line says for how long this process has done `what`, as in "planning the step": after
  /// `first` nanoseconds, and after twice the time of each line. `say` gets the lines, from another thread; empty: they
  /// are warnings of the first process of the job.
  explicit LongStage(std::string what, int64_t first = 5'000'000'000,
                     std::function<void(const std::string& line)> say = {});
  ~LongStage();
  LongStage(const LongStage&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace weft::train
