// L-BFGS (Liu and Nocedal 1989): a quasi-Newton method for losses without noise, as torch.optim.LBFGS computes it.
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "framework/autodiff/grad.h"

namespace weft::optim {

struct LBFGSOptions {
  double lr = 1;
  int64_t max_iter = 20;                 // iterations of one step
  std::optional<int64_t> max_eval = {};  // evaluations of the closure in one step; default: max_iter * 5 / 4
  double tolerance_grad = 1e-7;          // limit of the gradient's largest element
  double tolerance_change = 1e-9;        // limit of a move's largest element, and of the change of the loss
  int64_t history_size = 100;
  std::string line_search_fn = {};  // or "strong_wolfe": lr is then the first length to try
};

/// The loop runs on the host and reads losses, so step() works outside compiled functions only; the closure may call a
/// compiled function. Vectors are f32 (f64 if all parameters are).
class LBFGS {
 public:
  explicit LBFGS(const std::vector<Parameter>& params, const LBFGSOptions& options = {},
                 std::source_location loc = std::source_location::current());
  /// PyTorch's second argument.
  template <class T>
  requires std::is_arithmetic_v<T> LBFGS(const std::vector<Parameter>& params, T lr,
                                         std::source_location loc = std::source_location::current())
      : LBFGS(params, LBFGSOptions{.lr = static_cast<double>(lr)}, loc) {}

  /// Up to max_iter iterations; returns the loss of the first evaluation. `closure` returns the loss of the parameters'
  /// current values, or a pair of the loss and the gradients of parameters(), and is called several times.
  template <class Closure>
  Tensor step(const Closure& closure, std::source_location loc = std::source_location::current()) {
    if constexpr (std::is_convertible_v<decltype(closure()), Tensor>) {
      return minimise(
          [&] {
            const Tensor loss = closure();
            return std::pair<Tensor, std::vector<Tensor>>(loss, grad(loss, params_, {}, loc));
          },
          loc);
    } else {
      return minimise(closure, loc);
    }
  }
  /// The parameters that are not frozen when the optimiser is made.
  const std::vector<Parameter>& parameters() const { return params_; }
  /// Evaluations of the closure so far.
  int64_t evaluations() const { return evaluations_; }

  /// Counts, the last direction, and the history.
  std::map<std::string, Tensor> state_dict() const;
  /// Throws before it changes anything.
  void load_state_dict(const std::map<std::string, Tensor>& values,
                       std::source_location loc = std::source_location::current());

 private:
  using Closure = std::function<std::pair<Tensor, std::vector<Tensor>>()>;
  struct SearchPoint {
    double length = 0, loss = 0, slope = 0;
    Tensor grad;
  };
  struct CurvaturePair {
    Tensor y, s;
    double ro = 0;
  };
  /// The closure's loss and gradient at the parameters' current values; does not set slope.
  SearchPoint evaluate(const Closure& closure, Tensor* loss = nullptr);
  SearchPoint evaluate_at(const Closure& closure, const std::vector<Tensor>& start, double length);
  /// A point that satisfies the strong Wolfe conditions (Nocedal and Wright 2006, algorithms 3.5 and 3.6), or the best
  /// of 25 points.
  SearchPoint strong_wolfe(const Closure& closure, const std::vector<Tensor>& start, const SearchPoint& from,
                           double length);
  Tensor minimise(const Closure& closure, std::source_location loc);
  void update_direction(const Tensor& grad);
  std::vector<Tensor> values() const;
  /// Parameters <- start + length * direction.
  void move(const std::vector<Tensor>& start, double length) const;

  std::vector<Parameter> params_;
  LBFGSOptions options_;
  DType dtype_ = kFloat32;
  int64_t size_ = 0;
  int64_t iterations_ = 0, evaluations_ = 0;
  Tensor direction_, last_grad_;
  double length_ = 0, scale_ = 1;
  std::deque<CurvaturePair> history_;
};

}  // namespace weft::optim
