// Generates text with a model and a KV cache; scores a text.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/data/tokenizer.h"
#include "models/nn/transformer/language_model.h"

namespace weft::train {

struct SampleOptions {
  int64_t max_new_tokens = 200;
  double temperature = 1;         // 0: always the most likely token
  int64_t top_k = 0;              // choose among the k most likely tokens; 0: among all
  double top_p = 1;               // choose among the fewest most likely tokens whose probabilities add up to this
  double min_p = 0;               // drop tokens less likely than this times the likeliest
  double repetition_penalty = 1;  // divides positive logits of tokens in the text, and multiplies negative ones
  uint64_t seed = 0;
  int64_t vocab = 0;  // choose among the tokens below this: rows of a head that no token has; 0: among all
};

/// Draws a token from the distribution defined by `logits` and the options. `draw` is uniform on [0, 1).
int32_t sample_token(std::span<const float> logits, const SampleOptions& options, double draw);

/// Divides the positive logits of the tokens in `text` by `penalty`, and multiplies the negative ones; each token once.
void penalize(std::span<float> logits, std::span<const int32_t> text, double penalty);

/// A model and the tokens that it has read, one text after another. Prompts are read in chunks of at most 512 tokens.
/// The last chunk is padded to 8, 16, ... or 512 tokens, so prompts of all lengths need few captures.
class TokenDecoder {
 public:
  /// `tokens`: the length of the texts, as far as it is known. The KV cache has room for them, rounded up to a power of
  /// two, and doubles when it is full.
  TokenDecoder(const nn::LanguageModel& model, int64_t tokens);
  ~TokenDecoder();
  /// Reads at least one token and returns the logits of the token after them. The caller stays within the context.
  std::vector<float> read(std::span<const int32_t> ids);
  /// Removes all tokens.
  void forget();
  /// The number of tokens.
  int64_t held() const;
  /// How often the model was captured.
  int64_t captures() const;
  const nn::LanguageModel& model() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Continues `prompt`. Calls `emit` with each new token and stops when it returns false, or after max_new_tokens. When
/// the model's context is full, generation continues with its later half. The KV cache has room for the prompt and up
/// to 512 new tokens at first. Deterministic for a seed.
std::vector<int32_t> generate(const nn::LanguageModel& model, std::vector<int32_t> prompt, const SampleOptions& options,
                              const std::function<bool(int32_t)>& emit = {});

/// The same with a decoder, which forgets its text first.
std::vector<int32_t> generate(TokenDecoder& decoder, std::vector<int32_t> prompt, const SampleOptions& options,
                              const std::function<bool(int32_t)>& emit = {});

/// Prints a text of at most `tokens` tokens that the model begins, until a signal interrupts the program.
void print_sample(nn::LanguageModel& model, const data::Tokenizer& tokenizer, int64_t tokens, uint64_t seed);

/// Log-probabilities f32 [B, T] of targets[B, T] (integers), each given tokens[B, T] up to its position, from one
/// forward pass.
Tensor target_log_probs(const nn::LanguageModel& model, const Tensor& tokens, const Tensor& targets);

/// Log-probability of each token but the first, given the tokens before it. If the text is longer than the context,
/// each token is given at least half a context.
std::vector<double> score(const nn::LanguageModel& model, std::span<const int32_t> tokens);

/// The log-probability of a continuation after its context, in nats.
struct ContinuationScore {
  double logprob = 0;
  bool greedy = true;  // each token is the likeliest one
  int64_t tokens = 0;
};

/// Scores continuations as lm-evaluation-harness does. If context and continuation are longer than the model's context
/// and one token, their beginning is left out.
class ContinuationScorer {
 public:
  explicit ContinuationScorer(const nn::LanguageModel& model);
  ~ContinuationScorer();
  /// Both have at least one token, and the continuation has at most the model's context.
  ContinuationScore operator()(std::span<const int32_t> context, std::span<const int32_t> continuation) const;
  int64_t captures() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

struct LoadedModel;

/// Context and continuation as ids, at least one each.
struct TextPair {
  std::vector<int32_t> context, continuation;
};
/// A line {"context": TEXT, "continuation": TEXT}. Blanks at the end of the context belong to the continuation, and the
/// ids of the joined text are cut after the number of ids of the context. An empty context becomes a token that begins
/// or ends a text. Throws InvalidArgument "WHERE: ..." for another line, and if one of them has no token.
TextPair read_pair(const LoadedModel& model, std::string_view line, const std::string& where);

/// main() of the programs //models/FAMILY:generate and :score.
int generate_main(int argc, char** argv, const nn::ModelFamily& family);
int score_main(int argc, char** argv, const nn::ModelFamily& family);

}  // namespace weft::train
