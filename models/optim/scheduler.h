// Schedules that count their own steps, as in PyTorch, and set the learning rate of an optimiser. They run on the host,
// between compiled steps; the optimiser's lr is a cell, so a step needs no new capture.
#pragma once
#include <cstdint>
#include <limits>
#include <map>
#include <string>

#include "models/optim/optimizer.h"
#include "models/optim/schedule.h"

namespace weft::optim {

/// Sets lr to schedule.at(0), and in the n-th step() to schedule.at(n). A run that is continued makes a new Scheduler
/// and then calls load(scheduler, path) (models/save/save.h), or load_state_dict(), which continue the count.
/// `schedule` is a schedule of schedule.h or any function from int64_t to double. A schedule without a base changes the
/// lr that the optimiser has now.
class Scheduler {
 public:
  Scheduler(const Optimizer& opt, LrFunction schedule, std::source_location loc = std::source_location::current());
  /// Call it after the optimiser's step, outside compiled functions.
  void step(std::source_location loc = std::source_location::current());
  double lr() const { return schedule_(count_, base_); }
  int64_t last_epoch() const { return count_; }
  /// "last_epoch" (i64) and "base_lr" (f64), 0-d.
  std::map<std::string, Tensor> state_dict() const;
  /// Sets lr, too.
  void load_state_dict(const std::map<std::string, Tensor>& values,
                       std::source_location loc = std::source_location::current());

 private:
  void set(std::source_location loc) const;

  Buffer lr_;
  LrFunction schedule_;
  double base_;  // for a schedule without a base
  int64_t count_ = 0;
};

struct PlateauOptions {
  std::string mode = "min";  // or "max": whether a smaller or a larger metric is better
  double factor = 0.1;
  int64_t patience = 10;  // a reduction needs more than `patience` calls without a better metric
  double threshold = 1e-4;
  std::string threshold_mode = "rel";  // or "abs": how `threshold` defines a better metric
  int64_t cooldown = 0;                // number of uncounted calls after a reduction
  double min_lr = 0;
  double eps = 1e-8;  // smallest change of lr
};

/// lr <- max(lr * factor, min_lr) after more than `patience` metrics in a row without an improvement, as in PyTorch.
class ReduceLROnPlateau {
 public:
  explicit ReduceLROnPlateau(const Optimizer& opt, const PlateauOptions& options = {},
                             std::source_location loc = std::source_location::current());
  /// Call it once per epoch with a loss or another metric, outside compiled functions. NaN is never better.
  void step(double metric, std::source_location loc = std::source_location::current());
  double lr() const { return rate_; }
  double best() const { return best_; }
  /// "best" and "lr" (f64), "num_bad_epochs" and "cooldown_counter" (i64).
  std::map<std::string, Tensor> state_dict() const;
  /// Sets lr, too.
  void load_state_dict(const std::map<std::string, Tensor>& values,
                       std::source_location loc = std::source_location::current());

 private:
  bool better(double metric) const;
  void set(std::source_location loc) const;

  Buffer lr_;
  PlateauOptions options_;
  double best_ = std::numeric_limits<double>::infinity(), rate_ = 0;
  int64_t bad_ = 0, cooldown_ = 0;
};

}  // namespace weft::optim
