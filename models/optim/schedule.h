// Learning rates by step: plain functions of the step number, counted from 0. Give at(step) to Optimizer::set_lr.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace weft::optim {

/// base, after a linear rise over `warmup` steps.
struct ConstantWarmup {
  double base = 1e-3;
  int64_t warmup = 0;
  double at(int64_t step) const {
    return step < warmup ? base * static_cast<double>(step + 1) / static_cast<double>(warmup) : base;
  }
};

/// A linear rise to base over `warmup` steps, then half a cosine down to min_ratio * base at `total` steps.
struct CosineWarmup {
  double base = 1e-3;
  int64_t warmup = 0;
  int64_t total = 1;
  double min_ratio = 0.1;
  double at(int64_t step) const {
    if (step < warmup) return ConstantWarmup{base, warmup}.at(step);
    const double part =
        std::min(1.0, static_cast<double>(step - warmup) / static_cast<double>(std::max<int64_t>(1, total - warmup)));
    return base * (min_ratio + (1 - min_ratio) * 0.5 * (1 + std::cos(std::numbers::pi * part)));
  }
};

/// A linear rise to base over `warmup` steps, then a straight line down to min_ratio * base at `total` steps.
struct LinearWarmup {
  double base = 1e-3;
  int64_t warmup = 0;
  int64_t total = 1;
  double min_ratio = 0;
  double at(int64_t step) const {
    if (step < warmup) return ConstantWarmup{base, warmup}.at(step);
    const double part =
        std::min(1.0, static_cast<double>(step - warmup) / static_cast<double>(std::max<int64_t>(1, total - warmup)));
    return base * (1 - (1 - min_ratio) * part);
  }
};

}  // namespace weft::optim
