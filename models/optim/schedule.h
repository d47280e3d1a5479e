// Learning-rate schedules: plain functions of the step number, counted from 0. Pass at(step) to Optimizer::set_lr, or
// let Scheduler count (scheduler.h). Schedules with PyTorch's names have its numbers after `step` calls of step().
#pragma once
#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <functional>
#include <numbers>
#include <string>
#include <vector>

#include "framework/base/error.h"

namespace weft::optim {

/// The rate that a schedule changes. If it is not set, Scheduler takes the optimiser's lr, as PyTorch does, and at()
/// alone takes 1e-3.
class BaseRate {
 public:
  BaseRate() = default;
  BaseRate(double value) : value_(value), is_set_(true) {}
  operator double() const { return value_; }
  bool is_set() const { return is_set_; }

 private:
  double value_ = 1e-3;
  bool is_set_ = false;
};

/// A linear rise over `warmup` steps, then base.
struct ConstantWarmup {
  BaseRate base;
  int64_t warmup = 0;
  double at(int64_t step) const {
    WEFT_CHECK(step >= 0, "warm-up: got step ", step, "; need 0 or more");
    return step < warmup ? base * static_cast<double>(step + 1) / static_cast<double>(warmup) : double{base};
  }
};

/// Completed share of the steps from `warmup` to `total`, at most 1.
inline double share_after(int64_t step, int64_t warmup, int64_t total) {
  return std::min(1.0, static_cast<double>(step - warmup) / static_cast<double>(std::max<int64_t>(1, total - warmup)));
}

/// A linear rise to base over `warmup` steps, then half a cosine down to min_ratio * base at `total` steps.
struct CosineWarmup {
  BaseRate base;
  int64_t warmup = 0;
  int64_t total = 1;
  double min_ratio = 0.1;
  double at(int64_t step) const {
    if (step < warmup) return ConstantWarmup{base, warmup}.at(step);
    const double part = share_after(step, warmup, total);
    return base * (min_ratio + (1 - min_ratio) * 0.5 * (1 + std::cos(std::numbers::pi * part)));
  }
};

/// A linear rise to base over `warmup` steps, then a linear fall to min_ratio * base at `total` steps.
struct LinearWarmup {
  BaseRate base;
  int64_t warmup = 0;
  int64_t total = 1;
  double min_ratio = 0;
  double at(int64_t step) const {
    if (step < warmup) return ConstantWarmup{base, warmup}.at(step);
    return base * (1 - (1 - min_ratio) * share_after(step, warmup, total));
  }
};

/// A linear rise over `warmup` steps, base, then a fall to min_ratio * base in the last `decay` of `total` steps (Hu et
/// al. 2024, arXiv:2404.06395).
struct WarmupStableDecay {
  BaseRate base;
  int64_t warmup = 0;
  int64_t total = 1;
  int64_t decay = 0;
  double min_ratio = 0;
  std::string shape = "linear";  // shape of the fall: "linear", "cosine", or "sqrt" for 1 - sqrt(share)
  double at(int64_t step) const;
};

/// base * gamma^(step / step_size), the quotient rounded down.
struct StepLR {
  BaseRate base;
  int64_t step_size = 1;
  double gamma = 0.1;
  double at(int64_t step) const {
    WEFT_CHECK(step_size > 0, "StepLR: step_size is ", step_size, "; need 1 or more");
    return base * std::pow(gamma, static_cast<double>(step / step_size));
  }
};

/// base * gamma^n, where n is the number of milestones <= step.
struct MultiStepLR {
  BaseRate base;
  std::vector<int64_t> milestones;
  double gamma = 0.1;
  double at(int64_t step) const {
    const auto passed = std::count_if(milestones.begin(), milestones.end(), [&](int64_t m) { return m <= step; });
    return base * std::pow(gamma, static_cast<double>(passed));
  }
};

/// base * gamma^step.
struct ExponentialLR {
  BaseRate base;
  double gamma = 0.9;
  double at(int64_t step) const { return base * std::pow(gamma, static_cast<double>(step)); }
};

/// base * factor for `total_iters` steps, then base.
struct ConstantLR {
  BaseRate base;
  double factor = 1.0 / 3;
  int64_t total_iters = 5;
  double at(int64_t step) const { return step < total_iters ? base * factor : double{base}; }
};

/// From base * start_factor to base * end_factor along a line of `total_iters` steps.
struct LinearLR {
  BaseRate base;
  double start_factor = 1.0 / 3;
  double end_factor = 1;
  int64_t total_iters = 5;
  double at(int64_t step) const {
    return base * (start_factor + (end_factor - start_factor) * share_after(step, 0, total_iters));
  }
};

/// base * (1 - step / total_iters)^power, then 0.
struct PolynomialLR {
  BaseRate base;
  int64_t total_iters = 5;
  double power = 1;
  double at(int64_t step) const { return base * std::pow(1 - share_after(step, 0, total_iters), power); }
};

/// base * factor(step).
struct LambdaLR {
  BaseRate base;
  std::function<double(int64_t)> factor;
  double at(int64_t step) const {
    WEFT_CHECK(factor, "LambdaLR: got no function; need a function from step to factor");
    return base * factor(step);
  }
};

/// Half a cosine from base to eta_min in t_max steps, then back, and so on.
struct CosineAnnealingLR {
  BaseRate base;
  int64_t t_max = 1;
  double eta_min = 0;
  double at(int64_t step) const {
    WEFT_CHECK(t_max > 0, "CosineAnnealingLR: t_max is ", t_max, "; need 1 or more");
    const double part = static_cast<double>(step % (2 * t_max)) / static_cast<double>(t_max);
    return eta_min + (base - eta_min) * 0.5 * (1 + std::cos(std::numbers::pi * part));
  }
};

/// Half a cosine from base to eta_min in t_0 steps, then again from base; each period is t_mult times as long as the
/// one before.
struct CosineAnnealingWarmRestarts {
  BaseRate base;
  int64_t t_0 = 1;
  int64_t t_mult = 1;
  double eta_min = 0;
  double at(int64_t step) const;
};

/// From base_lr to max_lr along a line of step_size_up steps and back in step_size_down steps, and so on (Smith 2015,
/// arXiv:1506.01186); the momentum stays. The height of cycle n (from 1) is max_lr - base_lr, "triangular2": divided by
/// 2^(n - 1), "exp_range": times gamma^step.
struct CyclicLR {
  double base_lr = 1e-3;
  double max_lr = 1e-2;
  int64_t step_size_up = 2000;
  int64_t step_size_down = 0;  // 0: step_size_up
  std::string mode = "triangular";
  double gamma = 1;
  double at(int64_t step) const;
};

/// The rate of each step: a schedule of this file, or any function from int64_t to double.
class LrFunction {
 public:
  template <class Schedule>
  LrFunction(const Schedule& s) {
    if constexpr (requires { s.at(int64_t{}, BaseRate()); }) {
      at_ = [s](int64_t n, BaseRate base) { return s.at(n, base); };
    } else if constexpr (requires { s.base.is_set(); }) {
      at_ = [s](int64_t n, BaseRate base) {
        Schedule own = s;
        if (!own.base.is_set()) own.base = base;
        return own.at(n);
      };
    } else if constexpr (requires {
                           { s.at(int64_t{}) } -> std::convertible_to<double>;
                         }) {
      at_ = [s](int64_t n, BaseRate) { return s.at(n); };
    } else if (std::function<double(int64_t)> f = s) {
      at_ = [f](int64_t n, BaseRate) { return f(n); };
    }
  }
  /// `base`: for a schedule whose base is not set.
  double operator()(int64_t step, BaseRate base = {}) const { return at_(step, base); }
  explicit operator bool() const { return static_cast<bool>(at_); }

 private:
  std::function<double(int64_t, BaseRate)> at_;
};

/// The first schedule, and from each milestone on the next one, which counts its steps from there.
struct SequentialLR {
  std::vector<LrFunction> schedules;
  std::vector<int64_t> milestones;  // one less than schedules, rising
  double at(int64_t step, BaseRate base = {}) const;
};

/// From max_lr / div_factor up to max_lr in the first pct_start of total_steps, then down to max_lr / div_factor /
/// final_div_factor (Smith and Topin 2017, arXiv:1708.07120). three_phase: the rate first falls as slowly as it rose,
/// to its start. The momentum stays. at(total_steps) equals at(total_steps - 1), because the last call of
/// Scheduler::step() asks for it; later steps throw.
struct OneCycleLR {
  double max_lr = 1e-3;
  int64_t total_steps = 1;
  double pct_start = 0.3;
  std::string anneal_strategy = "cos";  // or "linear"
  double div_factor = 25;
  double final_div_factor = 1e4;
  bool three_phase = false;
  double at(int64_t step) const;
};

}  // namespace weft::optim
