// StepFiles: the files with the metrics of each step, --metrics and --log_dir. The first process of a job writes them.
#pragma once
#include <optional>

#include "models/train/event_file.h"
#include "models/train/metrics.h"
#include "models/train/options.h"

namespace weft::train {

class StepFiles {
 public:
  /// Opens the files of a run that continues after `step`. Prints the new name of an earlier metrics file, and how mfu
  /// is counted.
  StepFiles(const TrainOptions& options, const Setup& setup, int64_t step, double flops_per_token);
  /// Writes a line. Sets m.mfu if there is a metrics file and the device's rate is known.
  void write(StepMetrics& m);
  void write_eval(int64_t step, double loss);
  /// The steps after `step` are made again: their lines are removed, and with `events` a new event file begins.
  void go_back(int64_t step, bool events);

 private:
  const TrainOptions& options_;
  std::optional<MetricsFile> metrics_;
  std::optional<EventFile> events_;
  const double flops_per_token_;
  double rate_ = 0;  // of products of the device, in FLOP/s; 0: unknown
};

}  // namespace weft::train
