// Generates text with a model and a KV cache; scores a text.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "models/nn/transformer/language_model.h"

namespace weft::train {

struct SampleOptions {
  int64_t max_new_tokens = 200;
  double temperature = 1;  // 0: always the most likely token
  int64_t top_k = 0;       // choose among the k most likely tokens; 0: among all
  double top_p = 1;        // choose among the fewest most likely tokens whose probabilities add up to this
  uint64_t seed = 0;
};

/// Draws a token from the distribution defined by `logits` and the options. `draw` is uniform on [0, 1).
int32_t sample_token(std::span<const float> logits, const SampleOptions& options, double draw);

/// Continues `prompt`. Calls `emit` with each new token and stops when it returns false, or after max_new_tokens. When
/// the model's context is full, generation continues with its later half. The KV cache has room for the prompt and up
/// to 512 new tokens, rounded up to a power of two, and doubles when it is full. Deterministic for a seed.
std::vector<int32_t> generate(const nn::LanguageModel& model, std::vector<int32_t> prompt, const SampleOptions& options,
                              const std::function<bool(int32_t)>& emit = {});

/// Log-probabilities f32 [B, T] of targets[B, T] (integers), each given tokens[B, T] up to its position, from one
/// forward pass.
Tensor target_log_probs(const nn::LanguageModel& model, const Tensor& tokens, const Tensor& targets);

/// Log-probability of each token but the first, given the tokens before it. If the text is longer than the context,
/// each token is given at least half a context.
std::vector<double> score(const nn::LanguageModel& model, std::span<const int32_t> tokens);

/// main() of the programs //models/FAMILY:generate and :score.
int generate_main(int argc, char** argv, const nn::ModelFamily& family);
int score_main(int argc, char** argv, const nn::ModelFamily& family);

}  // namespace weft::train
