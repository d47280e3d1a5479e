#include "models/train/checkpoint_saver.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "framework/base/failure_report.h"
#include "framework/base/str_cat.h"
#include "framework/dispatch/rank/first_process.h"
#include "framework/dispatch/rank/flight.h"
#include "models/train/job.h"
#include "models/train/memory.h"

namespace weft::train {

double best_interval(double stall, double writing, double mtbf) {
  constexpr double kSlower = 0.1;  // a step may take this share longer while a thread writes
  return std::max(std::sqrt(2 * (stall + kSlower * writing) * mtbf), writing);
}

CheckpointSaver::CheckpointSaver(const Setup& setup, const TrainOptions& options)
    : setup_(setup),
      async_(options.checkpoint_async),
      stop_(options.checkpoint_errors == "stop"),
      keep_(options.keep),
      mtbf_(options.mtbf * 3600) {}

bool CheckpointSaver::lock() {
  bool as_settled = true;
  // If the folder cannot be used, all processes throw the first process's error.
  internal::on_first_process("locking --checkpoint_dir", [&] {
    try {
      io::make_folders(setup_.dir);
      lock_.emplace(lock_path(setup_.dir), setup_.dir);
      // A file system that cannot write at an offset is an error now, and not at the first save.
      const io::AtomicFolder probe(setup_.dir + "/probe");
      io::AtomicFile(probe.path("file")).resize(1 << 10);
    } catch (const Error& e) {
      throw Error(e.code(), str_cat("--checkpoint_dir: ", e.what()));
    }
    as_settled = newest_state(setup_.dir, setup_.memory) == setup_.resumed;
  });
  is_locked_ = true;
  return value_of_first(as_settled);
}

void CheckpointSaver::unlock() {
  lock_.reset();
  is_locked_ = false;
}

bool CheckpointSaver::due(int64_t step) {
  if (setup_.checkpoint_every >= 0) return setup_.checkpoint_every > 0 && step % setup_.checkpoint_every == 0;
  const double now = now_seconds();
  // The first step is longer: it plans and compiles.
  if (since_ <= 0) since_ = since_ < 0 ? 0 : now;
  return since_ > 0 && now - since_ > interval_;
}

void CheckpointSaver::wait(Progress& progress) {
  if (!save_) return;
  const double begin = now_seconds();
  go_on([this] { save_->wait(); });
  const double waited = now_seconds() - begin;
  if (waited >= 0.01) progress.note(formatted("waited %.2f s for the save of step %ld", waited, step_));
}

void CheckpointSaver::save(const Content& c, bool last, Progress& progress) {
  const flight::HostPhase phase(flight::Phase::kCheckpoint);
  wait(progress);
  last_ = last;
  step_ = c.state.step;
  stall_ = 0;
  since_ = now_seconds();
  const auto pace = async_ && !last ? AsyncSave::Pace::kYield : AsyncSave::Pace::kFull;
  go_on([&] {
    save_ =
        begin_checkpoint(setup_.dir, c.state, c.model, c.optimizer, keep_, lock_ ? &*lock_ : nullptr, c.about, pace);
    if (pace == AsyncSave::Pace::kFull) save_->wait();
  });
}

void RunningSave::go_on(const std::function<void()>& work) {
  const double begin = now_seconds();
  try {
    work();
  } catch (const Error& e) {
    if (follows(e.code())) throw;
    save_.reset();
    return failed(e);
  }
  stall_ += now_seconds() - begin;
  if (!save_ || !save_->complete()) return;
  const std::unique_ptr<AsyncSave> save = std::move(save_);
  completed(*save);
}

void CheckpointSaver::completed(const AsyncSave& save) {
  saved_ = step_;
  // Without async, the run has waited for the thread.
  interval_ = best_interval(stall_ + save.copy_seconds(), async_ ? save.seconds() : 0, mtbf_);
  if (save.note().empty()) return;
  check_lock();
  const std::string text = str_cat("old checkpoints are not removed: ", save.note());
  // Not kUnavailable, which only follows the failure of another process.
  if (stop_) throw Error(Code::kFailedPrecondition, text);
  if (dist::is_first()) internal::warn(text);
}

void CheckpointSaver::failed(const Error& error) {
  check_lock();
  if (stop_ || last_) throw error;
  if (dist::is_first())
    internal::warn(
        str_cat("step ", step_, " is not saved: ", error.what(), "; training goes on (--checkpoint_errors)"));
}

// Throws if another run has taken the folder. A folder that is missing or cannot be made is an error of the next save.
void CheckpointSaver::check_lock() {
  internal::on_first_process("checking --checkpoint_dir", [&] {
    if (lock_ && lock_->is_replaced()) lock_->renew();
  });
}

}  // namespace weft::train
