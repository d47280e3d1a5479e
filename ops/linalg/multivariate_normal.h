// The normal distribution of vectors, with the names and meaning of torch.distributions. It needs decompositions of
// matrices; ops/composite/random/distributions.h has the other distributions and their common rules.
#pragma once
#include "framework/dispatch/arg.h"

namespace weft::distributions {

/// One of the three: the covariance [..., n, n], its inverse, or its lower Cholesky factor.
struct Covariance {
  Tensor covariance_matrix = {}, precision_matrix = {}, scale_tril = {};
};

class MultivariateNormal {
 public:
  MultivariateNormal(const Arg& loc, const Arg& covariance_matrix);
  MultivariateNormal(const Arg& loc, const Covariance& parameters);
  Tensor loc;         // [..., n]
  Tensor scale_tril;  // [..., n, n], with the same dims in front
  Tensor covariance_matrix(std::source_location at = std::source_location::current()) const;
  /// [shape..., parameters' shape..., n], without a gradient; rsample has the gradient with respect to the parameters.
  Tensor sample(const Shape& shape = {}, std::source_location at = std::source_location::current()) const;
  Tensor rsample(const Shape& shape = {}, std::source_location at = std::source_location::current()) const;
  /// The log-density of vectors [..., n], without the last dim.
  Tensor log_prob(const Arg& value) const;
  Tensor entropy(std::source_location at = std::source_location::current()) const;
  Tensor mean(std::source_location = std::source_location::current()) const { return loc; }
  /// The diagonal of the covariance, [..., n].
  Tensor variance(std::source_location at = std::source_location::current()) const;
};

/// See kl_divergence in distributions.h.
Tensor kl_divergence(const MultivariateNormal& p, const MultivariateNormal& q,
                     std::source_location at = std::source_location::current());

}  // namespace weft::distributions
