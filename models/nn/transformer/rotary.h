// Rotary positions (Su et al. 2021) and their scaling for contexts longer than the trained one.
#pragma once
#include <string>
#include <vector>

#include "models/nn/config_map.h"
#include "ops/composite/layers/rope.h"

namespace weft::nn {

/// The laws of transformers' `rope_type`. With factor 1 no law changes a frequency.
struct RotaryOptions {
  double theta = 10000;  // pair i of D/2 rotates by theta^(-2i/D) radians per position
  // default; linear: all frequencies / factor (Chen et al. 2023); llama3: frequencies of long waves / factor (Llama
  // 3.1); yarn: the same by number of turns, with a factor for the scores (Peng et al. 2023).
  std::string type = "llama3";
  double factor = 1;
  int64_t original_context = 8192;  // the trained context; llama3 and yarn
  double low_freq_factor = 1,
         high_freq_factor = 4;           // llama3: turns within the trained context that / factor and 1 reach
  double beta_fast = 32, beta_slow = 1;  // yarn: the same, the other way round
  double attention_factor = 0;           // yarn: factor of cos and sin; 0: 0.1 ln(factor) + 1

  /// The fields of a configuration.
  template <class F>
  void fields(F&& f) {
    f("rope_theta", theta, kPositive), f("rope_type", type, Allowed{.words = "default,linear,llama3,yarn"});
    f("rope_factor", factor, kPositive), f("rope_original_context", original_context, kContext);
    f("rope_low_freq_factor", low_freq_factor, kPositive), f("rope_high_freq_factor", high_freq_factor, kPositive);
    f("rope_beta_fast", beta_fast, kPositive), f("rope_beta_slow", beta_slow, kPositive);
    f("rope_attention_factor", attention_factor, kNotNegative);
  }
};

struct RotaryFrequencies {
  std::vector<double> radians;  // [head_dim / 2], per position
  double scale = 1;             // factor of cos and sin
};

/// Throws InvalidArgument for an odd head_dim and for an unknown type.
RotaryFrequencies rotary_frequencies(int64_t head_dim, const RotaryOptions& options = {});

/// Tables [count, head_dim / 2] for apply_rope at i64 positions [count]. Frequencies are computed in f64.
RopeTables rotary_tables(const Arg& positions, int64_t head_dim, const RotaryOptions& options = {});

}  // namespace weft::nn
