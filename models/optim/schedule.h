// Learning-rate schedules: plain functions of the step number, counted from 0. Pass at(step) to Optimizer::set_lr.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace weft::optim {

/// A linear rise over `warmup` steps, then base.
struct ConstantWarmup {
  double base = 1e-3;
  int64_t warmup = 0;
  double at(int64_t step) const {
    return step < warmup ? base * static_cast<double>(step + 1) / static_cast<double>(warmup) : base;
  }
};

/// Share of the steps from `warmup` to `total` that are done, at most 1.
inline double share_after(int64_t step, int64_t warmup, int64_t total) {
  return std::min(1.0, static_cast<double>(step - warmup) / static_cast<double>(std::max<int64_t>(1, total - warmup)));
}

/// A linear rise to base over `warmup` steps, then half a cosine down to min_ratio * base at `total` steps.
struct CosineWarmup {
  double base = 1e-3;
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
  double base = 1e-3;
  int64_t warmup = 0;
  int64_t total = 1;
  double min_ratio = 0;
  double at(int64_t step) const {
    if (step < warmup) return ConstantWarmup{base, warmup}.at(step);
    return base * (1 - (1 - min_ratio) * share_after(step, warmup, total));
  }
};

}  // namespace weft::optim
