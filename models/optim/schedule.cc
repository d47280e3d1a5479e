#include "models/optim/schedule.h"

#include <algorithm>

namespace weft::optim {

// From `a` to `b` along half a cosine; share is from 0 to 1.
static double half_cosine(double a, double b, double share) {
  return b + (a - b) * 0.5 * (1 + std::cos(std::numbers::pi * share));
}

double WarmupStableDecay::at(int64_t step) const {
  WEFT_CHECK(shape == "linear" || shape == "cosine" || shape == "sqrt", "WarmupStableDecay: shape is '", shape,
             "'; need \"linear\", \"cosine\" or \"sqrt\"");
  WEFT_CHECK(decay >= 0 && warmup >= 0 && warmup + decay <= total, "WarmupStableDecay: warmup ", warmup, " and decay ",
             decay, " are more than total ", total, " or negative; need warmup + decay <= total");
  if (step < warmup) return ConstantWarmup{base, warmup}.at(step);
  if (step < total - decay) return base;
  const double share = share_after(step, total - decay, total);
  const double end = base * min_ratio;
  if (shape == "cosine") return half_cosine(base, end, share);
  return end + (base - end) * (1 - (shape == "sqrt" ? std::sqrt(share) : share));
}

double CosineAnnealingWarmRestarts::at(int64_t step) const {
  WEFT_CHECK(t_0 > 0 && t_mult > 0, "CosineAnnealingWarmRestarts: t_0 is ", t_0, " and t_mult ", t_mult,
             "; need 1 or more");
  int64_t period = t_0;
  if (t_mult == 1) step %= period;
  while (step >= period) {
    step -= period;
    period *= t_mult;
  }
  return half_cosine(base, eta_min, static_cast<double>(step) / static_cast<double>(period));
}

double CyclicLR::at(int64_t step) const {
  WEFT_CHECK(mode == "triangular" || mode == "triangular2" || mode == "exp_range", "CyclicLR: mode is '", mode,
             "'; need \"triangular\", \"triangular2\" or \"exp_range\"");
  WEFT_CHECK(step_size_up > 0 && step_size_down >= 0, "CyclicLR: step_size_up is ", step_size_up,
             " and step_size_down ", step_size_down, "; need 1 or more, or 0 for a fall as long as the rise");
  const int64_t down = step_size_down == 0 ? step_size_up : step_size_down, all = step_size_up + down;
  const int64_t cycle = step / all, now = step % all;
  const double share = now <= step_size_up ? static_cast<double>(now) / static_cast<double>(step_size_up)
                                           : static_cast<double>(all - now) / static_cast<double>(down);
  double height = (max_lr - base_lr) * share;
  if (mode == "triangular2") height *= std::exp2(-static_cast<double>(cycle));
  if (mode == "exp_range") height *= std::pow(gamma, static_cast<double>(step));
  return base_lr + height;
}

double SequentialLR::at(int64_t step, BaseRate base) const {
  WEFT_CHECK(!schedules.empty() && schedules.size() == milestones.size() + 1, "SequentialLR: got ", schedules.size(),
             " schedules and ", milestones.size(), " milestones; need one schedule more than milestones");
  WEFT_CHECK(std::is_sorted(milestones.begin(), milestones.end()), "SequentialLR: milestones are ", milestones,
             "; need rising numbers");
  const auto next = std::upper_bound(milestones.begin(), milestones.end(), step);
  const auto& schedule = schedules[static_cast<size_t>(next - milestones.begin())];
  WEFT_CHECK(schedule, "SequentialLR: a schedule is an empty function; need a function from step to lr");
  return schedule(next == milestones.begin() ? step : step - next[-1], base);
}

double OneCycleLR::at(int64_t step) const {
  WEFT_CHECK(anneal_strategy == "cos" || anneal_strategy == "linear", "OneCycleLR: anneal_strategy is '",
             anneal_strategy, "'; need \"cos\" or \"linear\"");
  WEFT_CHECK(total_steps > 0 && pct_start >= 0 && pct_start <= 1, "OneCycleLR: total_steps is ", total_steps,
             " and pct_start ", pct_start, "; need total_steps >= 1 and a share from 0 to 1");
  WEFT_CHECK(step >= 0 && step <= total_steps, "OneCycleLR: got step ", step, "; need 0 to ", total_steps,
             ": total_steps counts all steps");
  const double first = max_lr / div_factor, last = first / final_div_factor;
  const auto total = static_cast<double>(total_steps), now = static_cast<double>(std::min(step, total_steps - 1));
  struct CyclePhase {
    double end, from, to;
  };
  const double up = pct_start * total - 1;
  const std::vector<CyclePhase> phases = three_phase
                                             ? std::vector<CyclePhase>{{up, first, max_lr},
                                                                       {2 * pct_start * total - 2, max_lr, first},
                                                                       {total - 1, first, last}}
                                             : std::vector<CyclePhase>{{up, first, max_lr}, {total - 1, max_lr, last}};
  double begin = 0;
  for (const CyclePhase& p : phases) {
    if (now <= p.end || &p == &phases.back()) {
      const double share = p.end == begin ? 1 : (now - begin) / (p.end - begin);
      return anneal_strategy == "cos" ? half_cosine(p.from, p.to, share) : p.from + (p.to - p.from) * share;
    }
    begin = p.end;
  }
  return last;
}

}  // namespace weft::optim
