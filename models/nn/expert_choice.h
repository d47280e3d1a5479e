// ExpertChoice: how tokens choose experts: by the router, or by a law that ignores it, to study uneven load.
#pragma once
#include <string>
#include <vector>

#include "framework/tensor/tensor.h"

namespace weft::nn {

struct ExpertChoice {
  enum class Law : uint8_t { kLearned, kBalanced, kZipf, kSkew } law = Law::kLearned;
  double value = 0;  // zipf: the exponent; skew: the share of expert 0

  /// What parse() reads, for flags and errors.
  static constexpr const char* kNeed = "learned, balanced, zipf:S with S from 0 to 10, or skew:P with P from 0 to 1";
  /// "learned", "balanced", "zipf:1.1" or "skew:0.9"; throws InvalidArgument for others.
  static ExpertChoice parse(const std::string& text);

  bool learned() const { return law == Law::kLearned; }
  /// The mean share of the choices by expert: equal; 1 / rank^S (Zipf 1949); or P for expert 0 and the rest equally for
  /// the others. Not of a learned choice.
  std::vector<double> shares(int64_t experts) const;
  /// The choices of T tokens with these logits [T, E], i64 [T, top_k]; of the logits only the shape matters. Balanced
  /// ones go round: the loads differ by 1 at most. Others are drawn independently from the generator of random numbers,
  /// so a token may choose one expert several times.
  Tensor choose(const Tensor& logits, int64_t top_k) const;
};

}  // namespace weft::nn
