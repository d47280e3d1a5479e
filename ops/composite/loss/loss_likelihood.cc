#include "ops/composite/loss/loss_likelihood.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "ops/composite/loss/loss_parts.h"
#include "ops/core/indexing/view.h"

namespace weft {

using namespace internal;

Tensor kl_div(const Arg& x, const Arg& target, std::string_view reduction, bool log_target) {
  LineScope line(x.line());
  const bool batch = reduction == "batchmean";
  const auto [v, t] = loss_operands(x, target, batch ? "sum" : reduction, "kl_div");
  const Tensor loss = log_target ? exp(t) * (t - v) : t * (log(where(eq(t, 0.0), 1.0, t)) - v);
  if (!batch) return reduced(loss, reduction);
  return sum(loss) / (loss.dim() > 0 ? static_cast<double>(loss.size(0)) : 1.0);
}

Tensor poisson_nll_loss(const Arg& x, const Arg& target, const PoissonNllOptions& o) {
  LineScope line(x.line());
  const char* op = "poisson_nll_loss";
  const auto [v, t] = loss_operands(x, target, o.reduction, op);
  WEFT_CHECK(o.eps >= 0, op, ": eps is ", o.eps, "; need a number >= 0");
  Tensor loss = o.log_input ? exp(v) - t * v : v - t * log(v + o.eps);
  if (o.full) {
    const Tensor counts = gt(t, 1.0), n = where(counts, t, 1.0), log_n = log(n);
    loss = loss + where(counts, n * log_n - n + 0.5 * (log_n + ::std::log(2 * ::std::numbers::pi)), 0.0);
  }
  return reduced(loss, o.reduction);
}

Tensor gaussian_nll_loss(const Arg& x, const Arg& target, const Arg& var, const GaussianNllOptions& o) {
  LineScope line(x.line());
  const char* op = "gaussian_nll_loss";
  const Tensor &given = tensor_of(x, op), &wanted = tensor_of(target, op);
  const Shape shape = broadcast_shapes(given.shape(), wanted.shape(), op);
  auto [v, t] = loss_operands(broadcast_to(given, shape), broadcast_to(wanted, shape), o.reduction, op);
  WEFT_CHECK(o.eps > 0, op, ": eps is ", o.eps, "; need a number above 0");
  Tensor s =
      var.is_tensor() ? floating_of(var, op).to(promote(v.dtype(), var.tensor().dtype())) : full({}, var).to(v.dtype());
  widen_together({&v, &t, &s});
  const Shape& own = given.shape();
  Shape rest = own;
  if (!rest.empty()) rest.pop_back();
  if (s.dim() == own.size() - 1 && s.shape() == rest) s = unsqueeze(s, -1);
  bool fits = s.dim() == own.size();
  for (int d = 0; fits && d < own.size(); ++d) fits = s.shape()[d] == own[d] || s.shape()[d] == 1;
  WEFT_CHECK(!var.is_tensor() || fits, op, ": var has shape ", var.tensor().shape(), " and x ", own,
             "; need equal shapes, extents of 1, or no last dim");
  // A variance below eps becomes eps, with the gradient of var.
  s = where(lt(s, o.eps), where(lt(s, 0.0), std::numeric_limits<double>::quiet_NaN(), (s - s.detach()) + o.eps), s);
  Tensor loss = (log(s) + square(v - t) / s) * 0.5;
  if (o.full) loss = loss + 0.5 * ::std::log(2 * ::std::numbers::pi);
  return reduced(loss, o.reduction);
}

}  // namespace weft
