#include "ops/linalg/multivariate_normal.h"

#include <cmath>

#include "ops/composite/math/matrix.h"
#include "ops/composite/random/distribution_parts.h"
#include "ops/core/products/dot.h"
#include "ops/linalg/linalg.h"

namespace weft::distributions {

using internal::LineScope;

namespace {

constexpr const char* kName = "MultivariateNormal";

Shape leading(const Tensor& t, int last) {
  return Shape(std::span<const int64_t>(t.shape()).first(static_cast<size_t>(t.dim() - last)));
}
Shape with(Shape shape, std::initializer_list<int64_t> more) {
  for (int64_t n : more) shape.push_back(n);
  return shape;
}
Tensor log_of_diagonal(const Tensor& scale) { return sum(log(diagonal(scale, 0, -2, -1)), -1); }

}  // namespace

MultivariateNormal::MultivariateNormal(const Arg& mean, const Arg& covariance)
    : MultivariateNormal(mean, Covariance{.covariance_matrix = internal::parameter_of(covariance, kName)}) {}

MultivariateNormal::MultivariateNormal(const Arg& mean, const Covariance& p) {
  LineScope line(mean.line());
  const Tensor* given = nullptr;
  int count = 0;
  for (const Tensor* t : {&p.covariance_matrix, &p.precision_matrix, &p.scale_tril})
    if (t->defined()) given = t, ++count;
  WEFT_CHECK(count == 1, kName, ": got ", count, " of covariance_matrix, precision_matrix and scale_tril; need one");
  loc = internal::parameter_of(mean, kName);
  const int64_t n = loc.dim() > 0 ? loc.size(-1) : 0;
  WEFT_CHECK(n > 0 && given->dim() >= 2 && given->size(-1) == n && given->size(-2) == n, kName, ": loc is ", loc.type(),
             " and the matrix ", given->type(), "; need [..., n] and [..., n, n]");
  if (p.scale_tril.defined()) {
    internal::check_values(gt(diagonal(p.scale_tril, 0, -2, -1), 0.0),
                           "MultivariateNormal: a diagonal element of scale_tril is not above 0; need a lower triangle "
                           "with a positive diagonal");
    internal::check_values(eq(p.scale_tril, tril(p.scale_tril)),
                           "MultivariateNormal: scale_tril has numbers above its diagonal; need a lower triangle");
    scale_tril = p.scale_tril;
  } else {
    scale_tril = cholesky(p.covariance_matrix.defined() ? p.covariance_matrix : inverse(p.precision_matrix));
  }
  const DType type = promote(loc.dtype(), scale_tril.dtype());
  const Shape batch = broadcast_shapes(leading(loc, 1), leading(scale_tril, 2), kName);
  loc = broadcast_to(cast(loc, type), with(batch, {n}));
  scale_tril = broadcast_to(cast(scale_tril, type), with(batch, {n, n}));
}

Tensor MultivariateNormal::covariance_matrix(std::source_location at) const {
  LineScope line(at);
  const Autocast off(std::nullopt);
  return matmul(scale_tril, transpose(scale_tril, -2, -1));
}
Tensor MultivariateNormal::rsample(const Shape& shape, std::source_location at) const {
  LineScope line(at);
  const Autocast off(std::nullopt);
  const Tensor z = randn(internal::extended(shape, loc), internal::options_like(loc), at);
  return add(loc, squeeze(matmul(scale_tril, unsqueeze(z, -1)), -1));
}
Tensor MultivariateNormal::sample(const Shape& shape, std::source_location at) const {
  NoGrad guard;
  return rsample(shape, at).detach();
}
Tensor MultivariateNormal::log_prob(const Arg& value) const {
  LineScope line(value.line());
  const Tensor difference = sub(value, loc);
  const int64_t n = loc.size(-1);
  WEFT_CHECK(difference.size(-1) == n, kName, ": value gives differences ", difference.type(), " from loc ", loc.type(),
             "; need [..., ", n, "]");
  const Tensor scale = broadcast_to(scale_tril, with(leading(difference, 1), {n, n}));
  const Tensor y = squeeze(linalg::solve(scale, unsqueeze(difference, -1)), -1);
  const Tensor exponent = mul(add(sum(square(y), -1), static_cast<double>(n) * std::log(2 * M_PI)), -0.5);
  return sub(exponent, log_of_diagonal(scale_tril));
}
Tensor MultivariateNormal::entropy(std::source_location at) const {
  LineScope line(at);
  return add(log_of_diagonal(scale_tril), 0.5 * static_cast<double>(loc.size(-1)) * (1 + std::log(2 * M_PI)));
}
Tensor MultivariateNormal::variance(std::source_location at) const {
  LineScope line(at);
  return sum(square(scale_tril), -1);
}

Tensor kl_divergence(const MultivariateNormal& p, const MultivariateNormal& q, std::source_location at) {
  LineScope line(at);
  const int64_t n = p.loc.size(-1);
  WEFT_CHECK(q.loc.size(-1) == n, "kl_divergence: MultivariateNormals of ", n, " and ", q.loc.size(-1),
             " numbers; need equal numbers");
  const Shape batch = broadcast_shapes(leading(p.loc, 1), leading(q.loc, 1), "kl_divergence");
  // The factor of p and the difference of the means, in units of q: one solution for both.
  const Tensor of_p = broadcast_to(p.scale_tril, with(batch, {n, n}));
  const Tensor apart = broadcast_to(sub(p.loc, q.loc), with(batch, {n}));
  const Tensor both = cat({of_p, unsqueeze(apart, -1)}, -1);
  const Tensor units = linalg::solve(broadcast_to(q.scale_tril, with(batch, {n, n})), both);
  const Tensor logs = sub(log_of_diagonal(q.scale_tril), log_of_diagonal(p.scale_tril));
  return add(logs, mul(sub(sum(square(units), Dims{-2, -1}), static_cast<double>(n)), 0.5));
}

}  // namespace weft::distributions
