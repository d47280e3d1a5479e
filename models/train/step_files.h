// StepFiles: the files with the metrics of each step, --metrics and --log_dir. The first process of a job writes them.
#pragma once
#include <optional>

#include "models/train/event_file.h"
#include "models/train/metrics.h"
#include "models/train/options.h"

namespace weft::train {

class StepFiles {
 public:
  /// `options` and `setup` must outlive this.
  StepFiles(const TrainOptions& options, const Setup& setup, double flops_per_token)
      : options_(options), setup_(setup), flops_per_token_(flops_per_token) {}
  /// Opens the files of a run that continues after `step`. Prints the new name of an earlier metrics file, and how mfu
  /// is counted. If write() has had this step, another replica has written the files until now, perhaps without it: its
  /// line is written again.
  void open(int64_t step);
  /// Another replica writes the files from now on.
  void close();
  bool is_open() const { return is_open_; }
  /// Writes a line, if the files are open. Sets m.mfu if there is a metrics file and the device's rate is known.
  void write(StepMetrics& m);
  void write_eval(int64_t step, double loss);
  /// The steps after `step` are made again: their lines are removed, and with `events` a new event file begins.
  void go_back(int64_t step, bool events);

 private:
  void open_metrics(int64_t resume_at);
  const TrainOptions& options_;
  const Setup& setup_;
  bool is_open_ = false;
  std::optional<StepMetrics> latest_;
  std::optional<double> latest_eval_;  // the loss after this step
  std::optional<MetricsFile> metrics_;
  std::optional<EventFile> events_;
  const double flops_per_token_;
  double rate_ = 0;  // the device's rate of products, in FLOP/s; 0: unknown
};

}  // namespace weft::train
