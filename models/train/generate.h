// Text from a model: sampling with a KV cache.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "models/nn/language_model.h"

namespace weft::train {

struct SampleOptions {
  int64_t max_new_tokens = 200;
  double temperature = 1;  // 0: always the likeliest token
  int64_t top_k = 0;       // 0: all
  double top_p = 1;        // smallest set of likeliest tokens with at least this probability
  uint64_t seed = 0;
};

/// The token drawn from `logits` as the options say; `draw` is uniform on [0, 1).
int32_t sample_token(std::span<const float> logits, const SampleOptions& options, double draw);

/// Continues `prompt`, calling `emit` with each new token; stops when it returns false or the options say so. Beyond
/// the model's context it goes on with the later half of it. Deterministic given the seed.
std::vector<int32_t> generate(const nn::LanguageModel& model, std::vector<int32_t> prompt, const SampleOptions& options,
                              const std::function<bool(int32_t)>& emit = {});

/// Log-probability of each token from the second on, given those before it (at most the model's context,
/// at least half).
std::vector<double> score(const nn::LanguageModel& model, std::span<const int32_t> tokens);

/// main() of //models/FAMILY:generate and :score.
int generate_main(int argc, char** argv, const nn::ModelFamily& family);
int score_main(int argc, char** argv, const nn::ModelFamily& family);

}  // namespace weft::train
