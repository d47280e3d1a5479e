// ExpertChoice: how tokens choose experts: by the router, or by a law that ignores it, to study uneven load.
#pragma once
#include <string>
#include <vector>

#include "framework/tensor/tensor.h"

namespace weft::nn {

struct ExpertChoice {
  enum class Law : uint8_t { kLearned, kBalanced, kZipf, kSkew } law = Law::kLearned;
  double value = 0;  // zipf: the exponent; skew: the share of expert 0

  /// The texts that parse() accepts, for flags and errors.
  static constexpr const char* kNeed = "learned, balanced, zipf:S with S from 0 to 10, or skew:P with P from 0 to 1";
  /// "learned", "balanced", "zipf:1.1" or "skew:0.9"; throws InvalidArgument for others.
  static ExpertChoice parse(const std::string& text);
  /// Whether parse() accepts the text.
  static bool accepts(const std::string& text);

  bool learned() const { return law == Law::kLearned; }
  /// The mean share of each expert in the choices: equal; in proportion to 1 / rank^S (Zipf 1949); or P for expert 0
  /// and (1 - P) / (experts - 1) for each other. Requires a law that ignores the router.
  std::vector<double> shares(int64_t experts) const;
  /// The choices i64 [T, top_k] of T tokens with these logits [T, E]. Only the shape of the logits matters. Balanced
  /// choices cycle through the experts: the loads differ by 1 at most. The other laws draw each choice independently
  /// from the generator of random numbers, so a token may choose one expert several times.
  Tensor choose(const Tensor& logits, int64_t top_k) const;
};

}  // namespace weft::nn
