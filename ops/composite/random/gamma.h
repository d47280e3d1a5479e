// Gamma, Beta and Dirichlet distributions with the names and meaning of torch.distributions; distributions.h says what
// holds for all. A draw takes the first accepted of 12 proposals, so it is the same on any device and in any step.
#pragma once
#include "framework/dispatch/arg.h"

namespace weft::distributions {

#define WEFT_NO_RSAMPLE(Name)                                                            \
  template <class... T>                                                                  \
  void rsample(const T&...) const {                                                      \
    static_assert(sizeof...(T) > 99, #Name                                               \
                  ": rsample: samples have no gradient with respect to the parameters; " \
                  "use sample() and the gradient of log_prob()");                        \
  }

/// Positive numbers with density proportional to x^(concentration - 1) e^(-rate x).
class Gamma {
 public:
  Gamma(const Arg& concentration, const Arg& rate);
  Tensor concentration, rate;
  /// [shape..., parameters' shape...], without a gradient.
  Tensor sample(const Shape& shape = {}, std::source_location at = std::source_location::current()) const;
  WEFT_NO_RSAMPLE(Gamma)
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
  WEFT_NO_RSAMPLE(Dirichlet)
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
  WEFT_NO_RSAMPLE(Beta)
  /// -inf outside of [0, 1].
  Tensor log_prob(const Arg& value) const;
  Tensor entropy(std::source_location at = std::source_location::current()) const;
  Tensor mean(std::source_location at = std::source_location::current()) const;
  Tensor variance(std::source_location at = std::source_location::current()) const;

 private:
  Dirichlet pair() const;
};
#undef WEFT_NO_RSAMPLE

}  // namespace weft::distributions
