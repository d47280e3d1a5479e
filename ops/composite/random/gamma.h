// Gamma, Beta and Dirichlet distributions with the names and meaning of torch.distributions; distributions.h states the
// common rules. A draw takes the first accepted of 12 proposals, so it is the same on any device and in any step. The
// gradient of rsample is implicit reparameterisation (Figurnov et al. 2018, arXiv:1805.08498): a change of the
// concentration moves a draw of Gamma such that the probability of smaller draws stays. Draws of Dirichlet and Beta are
// shares of draws of Gamma, and so are their gradients, which have the mean of PyTorch's: it moves one share at a time.
#pragma once
#include "framework/dispatch/arg.h"

namespace weft::distributions {

/// Positive numbers with density proportional to x^(concentration - 1) e^(-rate x).
class Gamma {
 public:
  Gamma(const Arg& concentration, const Arg& rate);
  Tensor concentration, rate;
  /// [shape..., parameters' shape...], without a gradient.
  Tensor sample(const Shape& shape = {}, std::source_location at = std::source_location::current()) const;
  /// The same draws with a gradient with respect to the parameters.
  Tensor rsample(const Shape& shape = {}, std::source_location at = std::source_location::current()) const;
  /// -inf below 0.
  Tensor log_prob(const Arg& value) const;
  Tensor entropy(std::source_location at = std::source_location::current()) const;
  Tensor mean(std::source_location at = std::source_location::current()) const;
  Tensor variance(std::source_location at = std::source_location::current()) const;
};

/// Vectors of positive numbers with the sum 1 and density proportional to the product of x_i^(concentration_i - 1); the
/// last dim of the parameters is the vector.
class Dirichlet {
 public:
  explicit Dirichlet(const Arg& concentration);
  Tensor concentration;
  Tensor sample(const Shape& shape = {}, std::source_location at = std::source_location::current()) const;
  Tensor rsample(const Shape& shape = {}, std::source_location at = std::source_location::current()) const;
  /// The log-density of vectors [..., n], without the last dim.
  Tensor log_prob(const Arg& value) const;
  Tensor entropy(std::source_location at = std::source_location::current()) const;
  Tensor mean(std::source_location at = std::source_location::current()) const;
  Tensor variance(std::source_location at = std::source_location::current()) const;
};

/// Numbers of [0, 1] with density proportional to x^(concentration1 - 1) (1 - x)^(concentration0 - 1).
class Beta {
 public:
  Beta(const Arg& concentration1, const Arg& concentration0);
  Tensor concentration1, concentration0;
  Tensor sample(const Shape& shape = {}, std::source_location at = std::source_location::current()) const;
  Tensor rsample(const Shape& shape = {}, std::source_location at = std::source_location::current()) const;
  /// -inf outside of [0, 1].
  Tensor log_prob(const Arg& value) const;
  Tensor entropy(std::source_location at = std::source_location::current()) const;
  Tensor mean(std::source_location at = std::source_location::current()) const;
  Tensor variance(std::source_location at = std::source_location::current()) const;

  /// This number and 1 minus it.
  Dirichlet pair() const;
};

/// See kl_divergence in distributions.h.
Tensor kl_divergence(const Gamma& p, const Gamma& q, std::source_location at = std::source_location::current());
Tensor kl_divergence(const Beta& p, const Beta& q, std::source_location at = std::source_location::current());
Tensor kl_divergence(const Dirichlet& p, const Dirichlet& q, std::source_location at = std::source_location::current());

}  // namespace weft::distributions
