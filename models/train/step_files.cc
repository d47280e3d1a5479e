#include "models/train/step_files.h"

#include "framework/dispatch/rank/first_process.h"
#include "framework/io/file.h"
#include "models/train/job.h"

namespace weft::train {

StepFiles::StepFiles(const TrainOptions& o, const Setup& setup, int64_t step, double flops_per_token)
    : options_(o), flops_per_token_(flops_per_token) {
  if (!o.metrics.empty() && dist::is_first()) metrics_.emplace(io::resolve_path(o.metrics), o.resume || step > 0 ? step : -1);
  if (!o.log_dir.empty() && dist::is_first()) events_.emplace(io::resolve_path(o.log_dir), step + 1);
  if (!metrics_) return;
  if (!metrics_->kept().empty())
    std::printf("%s: the metrics of an earlier run are kept in %s\n",
                setup.resumed.empty() ? "no checkpoint to resume from"
                                      : "--metrics has no line up to the step of the checkpoint",
                metrics_->kept().c_str());
  rate_ = rate_of_products(setup.device, setup.dtype, o.resume || step > 0);
  announce_mfu(flops_per_token, rate_);
}

void StepFiles::write(StepMetrics& m) {
  if (metrics_ && rate_ > 0) m.mfu = flops_per_token_ * m.tokens_per_s / rate_;
  if (metrics_) metrics_->write(m);
  if (events_) events_->write(m);
}

void StepFiles::write_eval(int64_t step, double loss) {
  if (metrics_) metrics_->write_eval(step, loss);
  if (events_) events_->scalar("eval/loss", loss, step);
}

void StepFiles::go_back(int64_t step, bool events) {
  if (metrics_) metrics_.emplace(io::resolve_path(options_.metrics), step);
  if (events_ && events) events_.emplace(io::resolve_path(options_.log_dir), step + 1);
}

}  // namespace weft::train
