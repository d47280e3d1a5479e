// CheckpointSaver: the checkpoints of a run. It decides when they are due, writes them while the run waits or
// continues, and turns errors into warnings or into the end of the run.
//
// All processes of a job call the collectives between the same two steps. advance() continues an asynchronous save.
// The processes call it when they have agreed before a step that none is busy().
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "framework/io/file.h"
#include "models/train/checkpoint.h"
#include "models/train/metrics.h"
#include "models/train/options.h"

namespace weft::train {

/// A save that is written while the run waits or continues.
class RunningSave {
 public:
  /// Whether this process is at work on it.
  bool busy() const { return save_ && save_->busy(); }
  /// Continues the save that is being written, if there is one; need no busy process. A collective.
  void advance() {
    if (save_) go_on([this] { save_->advance(); });
  }

 protected:
  ~RunningSave() = default;
  /// Does `work`, which begins or continues the save, and calls failed() or completed() if the save has ended. All
  /// processes have the same error. Throws errors that only follow the end of the job.
  void go_on(const std::function<void()>& work);
  virtual void failed(const Error& error) = 0;
  virtual void completed(const AsyncSave& save) = 0;

  std::unique_ptr<AsyncSave> save_;  // null: none is being written
  int64_t step_ = -1;                // the step of the newest save
  double stall_ = 0;                 // seconds that the run has waited for it
};

class CheckpointSaver final : public RunningSave {
 public:
  /// Saves nothing before lock(). `setup` must outlive this.
  CheckpointSaver(const Setup& setup, const TrainOptions& options);
  ~CheckpointSaver() { save_.reset(); }  // its thread uses lock_

  /// Locks the folder in the first process, and throws there if no checkpoint can be written to it. Returns whether its
  /// newest checkpoint is the resumed one.
  bool lock();
  /// Whether lock() has locked the folder, and unlock() has not released it.
  bool is_locked() const { return is_locked_; }
  void unlock();
  /// Whether a checkpoint is due after `step`, which begins now: the first process's answer counts.
  bool due(int64_t step);
  /// The step of the newest checkpoint of this run, or of the resumed one; -1: none.
  int64_t saved() const { return saved_; }
  void set_saved(int64_t step) { saved_ = step; }

  /// Waits for the save that is being written. A collective.
  void wait(Progress& progress);

  /// The content of a checkpoint.
  struct Content {
    TrainState state;
    NamedCells model, optimizer;
    AboutRun about;
  };
  /// Saves a checkpoint, or begins to save it. The `last` checkpoint is complete when this returns; its error ends the
  /// run. A collective.
  void save(const Content& content, bool last, Progress& progress);

 private:
  void failed(const Error& error) override;
  void completed(const AsyncSave& save) override;
  void check_lock();

  const Setup& setup_;
  const bool async_, stop_;  // --checkpoint_async, --checkpoint_errors stop
  const int64_t keep_;
  const double mtbf_;                 // seconds
  std::optional<io::FileLock> lock_;  // in the first process
  bool is_locked_ = false;            // in all processes
  int64_t saved_ = -1;
  bool last_ = false;     // a failed save ends the run
  double since_ = -1;     // auto: when the newest save began, or the first step ended; -1: no step has begun
  double interval_ = 30;  // auto: seconds between saves
};

/// The best time between checkpoints (Young), in seconds. A checkpoint stops the run for `stall` seconds and then is
/// written for `writing` seconds, while steps are slower; `mtbf`: the mean time between failures of the run.
double best_interval(double stall, double writing, double mtbf);

}  // namespace weft::train
