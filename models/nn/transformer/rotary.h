// Rotary positions (Su et al. 2021) and their scaling for contexts longer than the trained one.
#pragma once
#include <string>
#include <vector>

#include "models/nn/config_map.h"
#include "ops/composite/layers/rope.h"

namespace weft::nn {

/// Frequencies by transformers' `rope_type`. No type changes a frequency if factor is 1.
struct RotaryOptions {
  double theta = 10000;  // pair i of D/2 rotates by theta^(-2i/D) radians per position
  double factor = 1;     // the context / original_context
  // Turns within the trained context: llama3 divides pairs with at most low_freq_factor turns by factor and keeps pairs
  // with at least high_freq_factor turns; the limits of yarn are beta_slow and beta_fast.
  double low_freq_factor = 1, high_freq_factor = 4;
  int64_t original_context = 8192;  // the trained context; llama3 and yarn
  // default: as theta gives; linear: all frequencies / factor (Chen et al. 2023); llama3: frequencies of long waves /
  // factor (Llama 3.1); yarn: the same by the number of a pair, with a factor of cos and sin (Peng et al. 2023).
  std::string type = "llama3";
  double beta_fast = 32, beta_slow = 1;
  double attention_factor = 0;  // yarn: factor of cos and sin; 0: 0.1 ln(factor) + 1

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

/// The frequencies of the pairs of a head, computed in f64. Throws InvalidArgument for an odd head_dim, an unknown type
/// and settings that give a frequency that is not finite.
RotaryFrequencies rotary_frequencies(int64_t head_dim, const RotaryOptions& options = {});

/// Tables [count, head_dim / 2] for apply_rope at i64 positions [count]. Throws as rotary_frequencies().
RopeTables rotary_tables(const Arg& positions, int64_t head_dim, const RotaryOptions& options = {});

}  // namespace weft::nn
