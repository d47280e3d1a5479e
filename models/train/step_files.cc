#include "models/train/step_files.h"

#include <chrono>
#include <thread>

#include "distributed/launch/processes.h"
#include "framework/base/error.h"
#include "framework/base/failure_report.h"
#include "framework/io/file.h"
#include "models/train/job.h"

namespace weft::train {

void StepFiles::open(int64_t step) {
  const bool again = latest_ && latest_->step == step;
  const int64_t kept = step - again;
  is_open_ = true;
  const TrainOptions& o = options_;
  const bool goes_on = o.resume || step > 0;
  if (!o.metrics.empty() && dist::is_first()) open_metrics(goes_on ? kept : -1);
  if (!o.log_dir.empty() && dist::is_first()) events_.emplace(io::resolve_path(o.log_dir), kept + 1);
  if (metrics_ && !metrics_->kept().empty())
    std::printf("%s are kept in %s\n",
                !goes_on ? "--metrics is a file of another program: its lines"
                : setup_.resumed.empty()
                    ? "no checkpoint to resume from: the metrics of an earlier run"
                    : "--metrics has no line up to the step of the checkpoint: the metrics of an earlier run",
                metrics_->kept().c_str());
  if (metrics_) {
    rate_ = rate_of_products(setup_.device, setup_.dtype, goes_on);
    announce_mfu(flops_per_token_, rate_);
  }
  if (!again) return;
  const std::optional<double> eval = latest_eval_;
  StepMetrics m = *latest_;
  write(m);
  if (eval) write_eval(step, *eval);
}

// A replica that was killed holds the file until its process has ended, and a stopped one for longer.
void StepFiles::open_metrics(int64_t resume_at) {
  for (const double end = now_seconds() + 2;;) {
    try {
      metrics_.emplace(io::resolve_path(options_.metrics), resume_at);
      return;
    } catch (const Error& e) {
      if (!setup_.replica || e.code() != Code::kFailedPrecondition) throw;
      if (now_seconds() >= end) {
        is_open_ = false;
        return internal::warn(str_cat(e.what(), "; this replica writes no metrics until the next view"));
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

void StepFiles::close() {
  metrics_.reset();
  events_.reset();
  is_open_ = false;
}

void StepFiles::write(StepMetrics& m) {
  if (metrics_ && rate_ > 0) m.mfu = flops_per_token_ * m.tokens_per_s / rate_;
  if (metrics_) metrics_->write(m);
  if (events_) events_->write(m);
  latest_ = m;
  latest_eval_.reset();
}

void StepFiles::write_eval(int64_t step, double loss) {
  if (metrics_) metrics_->write_eval(step, loss);
  if (events_) events_->scalar("eval/loss", loss, step);
  latest_eval_ = loss;
}

void StepFiles::go_back(int64_t step, bool events) {
  if (metrics_) metrics_.emplace(io::resolve_path(options_.metrics), step);
  if (events_ && events) events_.emplace(io::resolve_path(options_.log_dir), step + 1);
}

}  // namespace weft::train
