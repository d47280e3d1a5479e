// Output of a run: a file with one JSON object per line, and progress on standard output.
#pragma once
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace weft::train {

/// The activity of a rank of a mesh during one or more steps. Shares of this time are from 0 to 1.
struct RankMetrics {
  double tokens_per_s = 0;  // tokens of an equal part of the batch, over the time without waiting for slower ranks
  double exposed = 0;       // share of exposed communication: in wait() of collectives, while nothing computes
  double waiting = 0;       // part of `exposed` before another rank started the collective
};

/// A table of the ranks of a run; if there are more than eight, only the ranks that waited least: the others waited for
/// them.
std::string ranks_text(const std::vector<RankMetrics>& ranks, int64_t steps, double tokens_per_s);

/// The distribution of a step's choices over the experts.
struct ExpertLoad {
  std::vector<double> share;          // expert -> share of the choices of all layers
  std::vector<double> max_over_mean;  // layer -> choices of the fullest expert over the mean; 1: even
  std::vector<int64_t> dead;          // layer -> experts that no token chose
  std::vector<double> dropped;        // layer -> share of the choices beyond an expert's capacity
  ExpertLoad() = default;
  /// counts [L, E]: choices by layer and expert; dropped [L].
  ExpertLoad(const std::vector<int64_t>& counts, std::vector<double> dropped);
};

/// One line of the metrics file, without NaN fields. mfu: model FLOPs per second
/// (models/nn/transformer/model_flops.h) over the device's rate of products; 0: unknown, and left out.
struct StepMetrics {
  int64_t step = 0;
  double loss = 0, grad_norm = 0, lr = 0, step_ms = 0, tokens_per_s = 0, mfu = 0;
  bool moe = false;
  double aux_loss = 0;
  ExpertLoad load;
  std::vector<RankMetrics> ranks;  // on a mesh; empty: not collected for this step
};

/// Appends lines to a file; can cut it after an earlier step. Refuses other kinds of files, and a metrics file that
/// another run writes.
class MetricsFile {
 public:
  MetricsFile() = default;
  /// Starts a new file or, if `resume_at` >= 0, the step that is resumed, cuts an existing file after its last line
  /// with a step of at most `resume_at`, and continues it. A file without such a line, or of a run that starts anew
  /// (`resume_at` 0), is renamed instead: the folder of checkpoints may be wrong.
  MetricsFile(const std::string& path, int64_t resume_at);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  void write(const StepMetrics& m);
  void write_eval(int64_t step, double loss);
  /// The new path of a renamed existing file; empty: nothing was renamed.
  const std::string& kept() const { return kept_; }

 private:
  void line(const std::string& text);
  std::FILE* file_ = nullptr;
  std::string path_, kept_;
};

/// Progress: one line that is rewritten on a terminal, otherwise a plain line from time to time.
class Progress {
 public:
  Progress(int64_t first_step, int64_t steps);
  /// Whether update() should be called for the step that begins now and takes about `seconds`. A step that is made
  /// again (--check_state) has no second line.
  bool due(int64_t step, double seconds) const;
  void update(const StepMetrics& m);
  /// Prints a separate line above the progress line.
  void note(const std::string& text);
  void finish();

 private:
  void clear();
  const int64_t first_, steps_;
  int64_t last_;  // the last step with a line
  const bool terminal_;
  double started_ = 0, last_shown_ = 0, interval_ = 1;
  bool shown_ = false;
};

/// "3 min 05 s", "1 h 02 min", "9 s".
std::string duration_text(double seconds);
/// Seconds of a monotonic clock.
double now_seconds();

}  // namespace weft::train
