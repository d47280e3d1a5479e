// Probability distributions with the names and meaning of torch.distributions. Parameters broadcast against each other;
// numbers become f32. Random numbers come from the generator of the parameters' device, so compiled steps draw new ones
// in each call. Eagerly on the CPU, parameters are checked; inside compiled functions, where their values do not exist
// yet, they are not.
#pragma once
#include "framework/dispatch/arg.h"

namespace weft::distributions {

class Normal {
 public:
  Normal(const Arg& loc, const Arg& scale);
  Tensor loc, scale;
  /// [shape..., parameters' shape...], without a gradient; rsample has the gradient with respect to the parameters.
  Tensor sample(const Shape& shape = {}, std::source_location at = std::source_location::current()) const;
  Tensor rsample(const Shape& shape = {}, std::source_location at = std::source_location::current()) const;
  /// The logarithm of the density at `value`, which broadcasts with the parameters.
  Tensor log_prob(const Arg& value) const;
  Tensor entropy(std::source_location at = std::source_location::current()) const;
  Tensor mean(std::source_location at = std::source_location::current()) const;
  Tensor variance(std::source_location at = std::source_location::current()) const;
};

/// On [low, high).
class Uniform {
 public:
  Uniform(const Arg& low, const Arg& high);
  Tensor low, high;
  Tensor sample(const Shape& shape = {}, std::source_location at = std::source_location::current()) const;
  Tensor rsample(const Shape& shape = {}, std::source_location at = std::source_location::current()) const;
  /// -inf outside of [low, high).
  Tensor log_prob(const Arg& value) const;
  Tensor entropy(std::source_location at = std::source_location::current()) const;
  Tensor mean(std::source_location at = std::source_location::current()) const;
  Tensor variance(std::source_location at = std::source_location::current()) const;
};

class Exponential {
 public:
  explicit Exponential(const Arg& rate);
  Tensor rate;
  Tensor sample(const Shape& shape = {}, std::source_location at = std::source_location::current()) const;
  Tensor rsample(const Shape& shape = {}, std::source_location at = std::source_location::current()) const;
  /// -inf below 0.
  Tensor log_prob(const Arg& value) const;
  Tensor entropy(std::source_location at = std::source_location::current()) const;
  Tensor mean(std::source_location at = std::source_location::current()) const;
  Tensor variance(std::source_location at = std::source_location::current()) const;
};

/// One of the two, as designated initialisers: Bernoulli({.logits = x}).
struct ProbsOrLogits {
  Tensor probs = {}, logits = {};
};

/// 1 with probability `probs`, otherwise 0, in the parameters' dtype.
class Bernoulli {
 public:
  explicit Bernoulli(const Arg& probs);
  explicit Bernoulli(const ProbsOrLogits& parameters, std::source_location at = std::source_location::current());
  Tensor probs, logits;
  Tensor sample(const Shape& shape = {}, std::source_location at = std::source_location::current()) const;
  Tensor log_prob(const Arg& value) const;
  Tensor entropy(std::source_location at = std::source_location::current()) const;
  Tensor mean(std::source_location at = std::source_location::current()) const;
  Tensor variance(std::source_location at = std::source_location::current()) const;
};

/// An index of the last dim of the parameters, i64, in proportion to probs (any nonnegative weights) or e^logits.
class Categorical {
 public:
  explicit Categorical(const Arg& probs);
  explicit Categorical(const ProbsOrLogits& parameters, std::source_location at = std::source_location::current());
  Tensor probs, logits;  // normalised
  /// [shape..., parameters' shape without the last dim...].
  Tensor sample(const Shape& shape = {}, std::source_location at = std::source_location::current()) const;
  /// An index out of range throws OutOfRange.
  Tensor log_prob(const Arg& value) const;
  Tensor entropy(std::source_location at = std::source_location::current()) const;

 private:
  void set(const ProbsOrLogits& parameters);
};

/// The mean of log(p / q) over p; infinite where p is possible and q is not.
Tensor kl_divergence(const Normal& p, const Normal& q, std::source_location at = std::source_location::current());
Tensor kl_divergence(const Uniform& p, const Uniform& q, std::source_location at = std::source_location::current());
Tensor kl_divergence(const Exponential& p, const Exponential& q,
                     std::source_location at = std::source_location::current());
Tensor kl_divergence(const Bernoulli& p, const Bernoulli& q, std::source_location at = std::source_location::current());
Tensor kl_divergence(const Categorical& p, const Categorical& q,
                     std::source_location at = std::source_location::current());

}  // namespace weft::distributions
