// One model trained and used in several dtypes.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "framework/cli/cli.h"
#include "models/data/loader.h"
#include "models/nn/transformer/language_model.h"
#include "weft.h"

namespace weft::precision {

struct RunOptions {
  std::string model = "gpt", config;  // a family and its preset; empty: the family's default
  Settings fields = {};               // fields of the preset with other values
  std::string mesh = {};              // "ep2", with threads as ranks; empty: one device
  int64_t batch_size = 8, seq_len = 64, steps = 100;
  double lr = 1e-3;
  uint64_t seed = 0;
};

/// The longest text of the model. Throws UsageError, naming the choices, for an unknown model or preset, and if seq_len
/// is longer.
int64_t context_of(const RunOptions& options);
/// Throws ResourceExhausted if a step needs more memory than this process may use. The step is planned, nothing runs.
void check_memory(const RunOptions& options);

/// The arithmetic of a run. All weights and optimiser states are f32.
struct PrecisionMode {
  std::string name;                    // "bf16", or "f32, gradients in E5M2"
  DType dtype = kFloat32;              // dtype of activations
  int64_t exponent = 0, mantissa = 0;  // format of rounded gradients; 0: gradients are not rounded
};
/// f32, bf16, f16 (with loss scaling), and f32 with gradients in E5M2 and E4M3.
const std::vector<PrecisionMode>& training_modes();
/// f32, bf16, f16.
std::vector<PrecisionMode> dtype_modes();

/// A model in training on the embedded text with the trainer's step: gradients clipped to norm 1, AdamW, and no change
/// by a step whose gradients are not finite.
class Training {
 public:
  /// Throws the errors of context_of.
  Training(const RunOptions& options, const PrecisionMode& mode);
  ~Training();

  /// Trains one step on the next batch; returns its loss in nats, without auxiliary losses.
  double step();
  /// Seconds of the last step, without the time to make its batch.
  double seconds() const { return seconds_; }
  /// nn::LossOut::expert_counts and dropped of the last step.
  std::vector<int64_t> expert_counts() const { return counts_; }
  std::vector<double> dropped() const { return dropped_; }
  /// Steps whose gradients were not finite.
  int64_t skipped() const { return skipped_; }
  nn::LanguageModel& model() const;
  /// The next batch, i64 [batch, time] each.
  std::pair<Tensor, Tensor> next_batch();
  /// The step's graph after differentiation. Call step() first.
  const Graph& graph() const;

 private:
  struct TrainingState;
  std::unique_ptr<TrainingState> state_;
  int64_t skipped_ = 0;
  double seconds_ = 0;
  std::vector<int64_t> counts_;
  std::vector<double> dropped_;
};

/// Differences between log-probabilities (nats) of the same tokens in training's forward pass on whole texts and in
/// decoding one token at a time with a KV cache.
struct DecodingMismatch {
  double mean = 0, max = 0;  // mean and maximum of |difference|
  double bias = 0;           // mean of decoding minus forward
  double ratio_99 = 0;       // 99th percentile of |exp(difference) - 1|: the error of an importance weight
};
DecodingMismatch mismatch_of(std::span<const double> forward, std::span<const double> decoded);

/// Computes log-probabilities f32 [B, T - 1] of tokens[B, T] after the first, by the forward pass.
class ForwardScorer {
 public:
  explicit ForwardScorer(const nn::LanguageModel& model);
  std::vector<double> operator()(const Tensor& tokens) const;

 private:
  Compiled<std::function<Tensor(const Tensor&)>> run_;
};

/// Texts made or scored token by token with a KV cache. train::generate() makes one text without its probabilities;
/// Decoder decodes a batch at once and keeps the log-probabilities from which the tokens were drawn.
class Decoder {
 public:
  /// A decoder for `batch` texts of up to `length` tokens.
  Decoder(const nn::LanguageModel& model, int64_t batch, int64_t length);
  struct ScoredText {
    Tensor tokens;                  // i64 [B, T], the first column is given
    std::vector<double> log_probs;  // [B, T - 1], in row-major order
  };
  /// Draws T - 1 tokens after first[B] at temperature 1.
  ScoredText sample(std::span<const int64_t> first, int64_t length, uint64_t seed) const;
  /// Log-probabilities of tokens[B, T] after the first.
  std::vector<double> score(const Tensor& tokens) const;

 private:
  /// `choose(row, log_probs)` returns the next token of a row.
  using TokenChoice = std::function<int64_t(int64_t row, int64_t at, std::span<const float> log_probs)>;
  ScoredText decode(std::span<const int64_t> first, int64_t length, const TokenChoice& choose) const;
  int64_t vocab_, batch_;
  nn::KvCache cache_;
  Compiled<std::function<Tensor(const Tensor&)>> run_;
};

/// A step of REINFORCE from a trained model: texts are drawn with the KV cache in the mode's dtype, and the forward
/// pass in the same dtype provides the gradients.
struct ReinforceStep {
  double reward = 0;          // mean over texts
  DecodingMismatch mismatch;  // between drawing and the forward pass
  double drift = 0;           // mean of log p(now) - log p(start) of the drawn tokens: an estimate of KL(now | start)
};
struct ReinforceOptions {
  int64_t steps = 50, texts = 16, length = 48;
  double lr = 3e-4;
  uint64_t seed = 0;
};
/// The reward of a text is the share of its tokens that are lower-case vowels. Advantages are rewards less their mean,
/// divided by their deviation. `start` contains the initial weights and stays unchanged.
/// Stops after the step for which `progress` returns false.
std::vector<ReinforceStep> reinforce(const RunOptions& run, const nn::LanguageModel& start, const PrecisionMode& mode,
                                     const ReinforceOptions& options,
                                     const std::function<bool(int64_t, const ReinforceStep&)>& progress = {});

}  // namespace weft::precision
