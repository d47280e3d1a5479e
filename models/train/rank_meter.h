// Measures the times that the ranks of a mesh wait for each other in training steps.
#pragma once
#include <vector>

#include "distributed/launch/world.h"
#include "models/train/metrics.h"

namespace weft::train {

class RankMeter {
 public:
  /// Measures the ranks of `world`, which must outlive this object.
  explicit RankMeter(dist::World& world);
  /// Call them before and after each step.
  void begin();
  void end();
  /// The last step took `seconds` for the `tokens` of all ranks.
  void count(double seconds, double tokens);
  /// The metrics by rank for the last step and for all steps but the first, which also makes buffers. These are
  /// collectives if the ranks are processes.
  std::vector<RankMetrics> last();
  std::vector<RankMetrics> all();
  int64_t steps() const { return steps_; }
  /// The rate of all ranks together in the steps of all().
  double tokens_per_s() const { return seconds_ > 0 ? tokens_ / seconds_ : 0; }

 private:
  std::vector<RankMetrics> gathered(const std::vector<WaitedSeconds>& waited, double seconds, double tokens);

  dist::World& world_;
  std::vector<WaitedSeconds> begun_, last_, all_;  // index: local rank
  double last_seconds_ = 0, last_tokens_ = 0, seconds_ = 0, tokens_ = 0;
  int64_t steps_ = 0;
  bool first_ = true;
};

}  // namespace weft::train
