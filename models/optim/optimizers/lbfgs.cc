#include "models/optim/optimizers/lbfgs.h"

#include <algorithm>
#include <cmath>

#include "framework/dispatch/state/state.h"
#include "models/optim/cells.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"
#include "ops/core/reductions/reduce.h"

namespace weft::optim {
namespace {

double dot(const Tensor& a, const Tensor& b) { return sum(a * b).item<double>(); }
double largest(const Tensor& x) { return amax(abs(x)).item<double>(); }

// The least point, in [lo, hi], of the cubic through two points with these slopes.
double cubic(double x1, double f1, double g1, double x2, double f2, double g2, double lo, double hi) {
  const double d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2), square = d1 * d1 - g1 * g2;
  if (!(square >= 0)) return (lo + hi) / 2;
  const double d2 = ::std::sqrt(square);
  const double at = x1 <= x2 ? x2 - (x2 - x1) * ((g2 + d2 - d1) / (g2 - g1 + 2 * d2))
                             : x1 - (x1 - x2) * ((g1 + d2 - d1) / (g1 - g2 + 2 * d2));
  return ::std::min(::std::max(at, lo), hi);
}

}  // namespace

LBFGS::LBFGS(const std::vector<Parameter>& params, const LBFGSOptions& o, std::source_location loc) : options_(o) {
  internal::LineScope line(loc);
  WEFT_CHECK(o.lr >= 0, "LBFGS: lr is ", o.lr, "; need a number >= 0");
  WEFT_CHECK(o.max_iter > 0 && o.history_size > 0, "LBFGS: max_iter is ", o.max_iter, " and history_size ",
             o.history_size, "; need 1 or more");
  WEFT_CHECK(o.line_search_fn.empty() || o.line_search_fn == "strong_wolfe", "LBFGS: line_search_fn is '",
             o.line_search_fn, "'; need \"strong_wolfe\" or nothing");
  if (!options_.max_eval) options_.max_eval = o.max_iter * 5 / 4;
  dtype_ = kFloat64;
  for (const Parameter& p : params) {
    if (!p.requires_grad()) continue;
    WEFT_CHECK(::std::find(params_.begin(), params_.end(), p) == params_.end(),
               "LBFGS: ", internal::shown(p, static_cast<size_t>(&p - params.data())),
               " is given twice; need each once");
    params_.push_back(p);
    size_ += p.numel();
    if (p.dtype() != kFloat64) dtype_ = kFloat32;
  }
  WEFT_CHECK(size_ > 0, "LBFGS: got no parameters with elements; need one or more");
}

std::vector<Tensor> LBFGS::values() const {
  std::vector<Tensor> out;
  for (const Parameter& p : params_) out.push_back(p.value().detach());
  return out;
}

void LBFGS::move(const std::vector<Tensor>& start, double length) const {
  int64_t at = 0;
  for (size_t i = 0; i < params_.size(); ++i) {
    const Parameter& p = params_[i];
    const Tensor d = reshape(slice(direction_, 0, at, at + p.numel()), p.shape());
    p.set((start[i].to(dtype_) + d * length).to(p.dtype()));
    at += p.numel();
  }
}

LBFGS::SearchPoint LBFGS::evaluate(const Closure& closure, Tensor* loss) {
  ++evaluations_;
  std::pair<Tensor, std::vector<Tensor>> got;
  {
    const EnableGrad on;
    got = closure();
  }
  const auto& [value, grads] = got;
  WEFT_CHECK(grads.size() == params_.size(), "LBFGS: the closure returned ", grads.size(), " gradients; need ",
             params_.size(), ", one for each of parameters()");
  std::vector<Tensor> flat;
  for (size_t i = 0; i < grads.size(); ++i) {
    WEFT_CHECK(grads[i].defined() && grads[i].shape() == params_[i].shape(), "LBFGS: gradient ", i,
               " is undefined or does not have the shape ", params_[i].shape(), " of parameter '", params_[i].name(),
               "'; need gradients in the order of parameters()");
    flat.push_back(reshape(grads[i].detach().to(dtype_), {params_[i].numel()}));
  }
  if (loss) *loss = value;
  return {.loss = value.item<double>(), .grad = cat(flat)};
}

LBFGS::SearchPoint LBFGS::evaluate_at(const Closure& closure, const std::vector<Tensor>& start, double length) {
  move(start, length);
  SearchPoint p = evaluate(closure);
  p.length = length;
  p.slope = dot(p.grad, direction_);
  return p;
}

LBFGS::SearchPoint LBFGS::strong_wolfe(const Closure& closure, const std::vector<Tensor>& start,
                                       const SearchPoint& from, double length) {
  constexpr double kDecrease = 1e-4, kCurvature = 0.9;
  constexpr int kMost = 25;
  const auto too_high = [&](const SearchPoint& p) { return p.loss > from.loss + kDecrease * p.length * from.slope; };
  const auto flat = [&](const SearchPoint& p) { return ::std::fabs(p.slope) <= -kCurvature * from.slope; };
  // Lengthen the move until a minimum is between two points.
  SearchPoint last = from, now = evaluate_at(closure, start, length);
  int count = 0;
  for (; count < kMost; ++count) {
    if (too_high(now) || (count > 1 && now.loss >= last.loss)) break;
    if (flat(now)) return now;
    if (now.slope >= 0) break;
    const double next = cubic(last.length, last.loss, last.slope, now.length, now.loss, now.slope,
                              now.length + 0.01 * (now.length - last.length), now.length * 10);
    last = now;
    now = evaluate_at(closure, start, next);
  }
  if (count == kMost) last = from;
  // Shorten the interval.
  SearchPoint low = last, high = now;
  if (!(low.loss <= high.loss)) ::std::swap(low, high);
  const double width = largest(direction_);
  bool slow = false;
  for (; count < kMost; ++count) {
    const double lo = ::std::min(low.length, high.length), hi = ::std::max(low.length, high.length);
    if ((hi - lo) * width < options_.tolerance_change) break;
    double at = cubic(low.length, low.loss, low.slope, high.length, high.loss, high.slope, lo, hi);
    const double edge = 0.1 * (hi - lo);
    if (::std::min(hi - at, at - lo) < edge) {
      if (slow || at >= hi || at <= lo) {
        at = ::std::fabs(at - hi) < ::std::fabs(at - lo) ? hi - edge : lo + edge;
        slow = false;
      } else {
        slow = true;
      }
    } else {
      slow = false;
    }
    now = evaluate_at(closure, start, at);
    if (too_high(now) || now.loss >= low.loss) {
      high = now;
      if (!(low.loss <= high.loss)) ::std::swap(low, high);
      continue;
    }
    if (flat(now)) return now;
    if (now.slope * (high.length - low.length) >= 0) high = low;
    low = now;
  }
  return low;
}

void LBFGS::update_direction(const Tensor& grad) {
  if (iterations_ == 1) {
    direction_ = -grad;
    history_.clear();
    scale_ = 1;
    return;
  }
  const Tensor y = grad - last_grad_, s = direction_ * length_;
  const double ys = dot(y, s);
  if (ys > 1e-10) {
    if (static_cast<int64_t>(history_.size()) == options_.history_size) history_.pop_front();
    history_.push_back({y, s, 1 / ys});
    scale_ = ys / dot(y, y);
  }
  // The two loops of Nocedal (1980).
  std::vector<double> alpha(history_.size());
  Tensor q = -grad;
  for (size_t i = history_.size(); i-- > 0;) {
    alpha[i] = dot(history_[i].s, q) * history_[i].ro;
    q = q - history_[i].y * alpha[i];
  }
  q = q * scale_;
  for (size_t i = 0; i < history_.size(); ++i)
    q = q + history_[i].s * (alpha[i] - dot(history_[i].y, q) * history_[i].ro);
  direction_ = q;
}

Tensor LBFGS::minimise(const Closure& closure, std::source_location loc) {
  internal::LineScope line(loc);
  WEFT_CHECK(!is_capturing(),
             "LBFGS: step called inside a compiled function, but its loop reads losses; need a call "
             "outside, whose closure may call a compiled function");
  const NoGrad guard;
  const int64_t before = evaluations_;
  Tensor first;
  SearchPoint now = evaluate(closure, &first);
  if (largest(now.grad) <= options_.tolerance_grad) return first;
  for (int64_t i = 1; i <= options_.max_iter; ++i) {
    ++iterations_;
    update_direction(now.grad);
    last_grad_ = now.grad;
    const double last_loss = now.loss;
    length_ = options_.lr * (iterations_ == 1 ? ::std::min(1.0, 1 / sum(abs(now.grad)).item<double>()) : 1.0);
    now.length = 0;
    now.slope = dot(now.grad, direction_);
    if (now.slope > -options_.tolerance_change) break;
    const std::vector<Tensor> start = values();
    if (!options_.line_search_fn.empty()) {
      now = strong_wolfe(closure, start, now, length_);
      length_ = now.length;
      move(start, length_);
    } else {
      move(start, length_);
      if (i < options_.max_iter) now = evaluate(closure);
    }
    if (i == options_.max_iter || evaluations_ - before >= *options_.max_eval ||
        largest(now.grad) <= options_.tolerance_grad || largest(direction_ * length_) <= options_.tolerance_change ||
        ::std::fabs(now.loss - last_loss) < options_.tolerance_change)
      break;
  }
  return first;
}

std::map<std::string, Tensor> LBFGS::state_dict() const {
  const auto n = static_cast<int64_t>(history_.size());
  std::map<std::string, Tensor> out{{"counts", Tensor::from_vector<int64_t>({iterations_, evaluations_, n}, {3})},
                                    {"length", Tensor::from_vector<double>({length_, scale_}, {2})}};
  if (iterations_ == 0) return out;
  out["d"] = direction_;
  out["prev_flat_grad"] = last_grad_;
  for (int64_t i = 0; i < n; ++i) {
    out[str_cat("old_dirs.", i)] = history_[i].y;
    out[str_cat("old_stps.", i)] = history_[i].s;
  }
  return out;
}

void LBFGS::load_state_dict(const std::map<std::string, Tensor>& values, std::source_location loc) {
  internal::LineScope line(loc);
  size_t read = 0;
  const auto get = [&](const std::string& name, const Shape& shape) {
    const auto it = values.find(name);
    WEFT_CHECK(it != values.end() && it->second.defined() && it->second.shape() == shape, "load_state_dict: LBFGS: '",
               name, "' is missing or does not have the shape ", shape);
    ++read;
    return it->second;
  };
  const Tensor integers = get("counts", {3});
  WEFT_CHECK(is_integral(integers.dtype()), "load_state_dict: LBFGS: 'counts' is ", integers.dtype(),
             "; need integers");
  const auto counts = integers.to_vector<int64_t>();
  const auto numbers = get("length", {2}).to_vector<double>();
  WEFT_CHECK(counts[0] >= 0 && counts[1] >= 0 && counts[2] >= 0 && counts[2] <= options_.history_size,
             "load_state_dict: LBFGS: 'counts' has iterations ", counts[0], ", evaluations ", counts[1],
             " and a history of ", counts[2], "; need numbers >= 0 and a history of at most ", options_.history_size);
  WEFT_CHECK(::std::isfinite(numbers[0]) && ::std::isfinite(numbers[1]), "load_state_dict: LBFGS: 'length' has ",
             numbers[0], " and ", numbers[1], "; need finite numbers");
  const auto vector = [&](const std::string& name) {
    return get(name, {size_}).to(dtype_).to(params_[0].type().device);
  };
  Tensor d, g;
  std::deque<CurvaturePair> history;
  if (counts[0] > 0) {
    d = vector("d");
    g = vector("prev_flat_grad");
    for (int64_t i = 0; i < counts[2]; ++i) {
      const Tensor y = vector(str_cat("old_dirs.", i)), s = vector(str_cat("old_stps.", i));
      history.push_back({y, s, 1 / dot(y, s)});
    }
  }
  WEFT_CHECK(read == values.size(), "load_state_dict: LBFGS: got ", values.size(), " entries; need the ", read,
             " of state_dict()");
  iterations_ = counts[0], evaluations_ = counts[1];
  length_ = numbers[0], scale_ = numbers[1];
  direction_ = d, last_grad_ = g;
  history_ = std::move(history);
}

}  // namespace weft::optim
