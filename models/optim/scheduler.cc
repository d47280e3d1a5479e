#include "models/optim/scheduler.h"

#include <algorithm>

#include "framework/dispatch/state/state.h"
#include "models/optim/cells.h"

namespace weft::optim {
namespace {

template <class T>
T number(const std::map<std::string, Tensor>& values, const char* name, const char* what) {
  const auto it = values.find(name);
  WEFT_CHECK(it != values.end() && it->second.defined() && it->second.numel() == 1, "load_state_dict: ", what, ": '",
             name, "' is missing or not one number");
  WEFT_CHECK(std::is_floating_point_v<T> || is_integral(it->second.dtype()), "load_state_dict: ", what, ": '", name,
             "' is ", it->second.dtype(), "; need an integer");
  return it->second.item<T>();
}

void check_size(const std::map<std::string, Tensor>& values, size_t size, const char* what) {
  WEFT_CHECK(values.size() == size, "load_state_dict: ", what, ": got ", values.size(), " entries; need ", size);
}

// An optimiser that is only planned has no value.
double lr_now(const Buffer& lr) {
  return is_capturing() || lr.type().device.type == DeviceType::kMeta ? 0 : lr.value().item<double>();
}

Tensor tensor(double value) { return Tensor::from_vector<double>({value}, {}); }
Tensor tensor(int64_t value) { return Tensor::from_vector<int64_t>({value}, {}); }

}  // namespace

Scheduler::Scheduler(const Optimizer& opt, LrFunction schedule, std::source_location loc)
    : lr_(opt.lr), schedule_(std::move(schedule)), base_(lr_now(lr_)) {
  internal::LineScope line(loc);
  WEFT_CHECK(schedule_, "Scheduler: got no function; need a function from step to lr");
  set(loc);
}

void Scheduler::set(std::source_location loc) const {
  internal::LineScope line(loc);
  internal::set_lr(lr_, lr(), "Scheduler");
}

void Scheduler::step(std::source_location loc) {
  internal::LineScope line(loc);
  internal::set_lr(lr_, schedule_(count_ + 1, base_), "Scheduler");
  ++count_;
}

std::map<std::string, Tensor> Scheduler::state_dict() const {
  return {{"base_lr", tensor(base_)}, {"last_epoch", tensor(count_)}};
}

void Scheduler::load_state_dict(const std::map<std::string, Tensor>& values, std::source_location loc) {
  internal::LineScope line(loc);
  const auto count = number<int64_t>(values, "last_epoch", "Scheduler");
  const bool has_base = values.contains("base_lr");  // an earlier version did not save it, and had one default
  const double base = has_base ? number<double>(values, "base_lr", "Scheduler") : double{BaseRate()};
  check_size(values, has_base ? 2 : 1, "Scheduler");
  WEFT_CHECK(count >= 0, "load_state_dict: Scheduler: last_epoch is ", count, "; need a number >= 0");
  internal::set_lr(lr_, schedule_(count, base), "Scheduler");
  count_ = count, base_ = base;
}

ReduceLROnPlateau::ReduceLROnPlateau(const Optimizer& opt, const PlateauOptions& o, std::source_location loc)
    : lr_(opt.lr), options_(o) {
  internal::LineScope line(loc);
  const char* op = "ReduceLROnPlateau";
  WEFT_CHECK(o.mode == "min" || o.mode == "max", op, ": mode is '", o.mode, "'; need \"min\" or \"max\"");
  WEFT_CHECK(o.threshold_mode == "rel" || o.threshold_mode == "abs", op, ": threshold_mode is '", o.threshold_mode,
             "'; need \"rel\" or \"abs\"");
  WEFT_CHECK(o.factor < 1, op, ": factor is ", o.factor, "; need a number below 1");
  if (o.mode == "max") best_ = -best_;
  rate_ = opt.lr.value().item<double>();
}

bool ReduceLROnPlateau::better(double metric) const {
  const bool relative = options_.threshold_mode == "rel";
  if (options_.mode == "min")
    return metric < (relative ? best_ * (1 - options_.threshold) : best_ - options_.threshold);
  return metric > (relative ? best_ * (1 + options_.threshold) : best_ + options_.threshold);
}

void ReduceLROnPlateau::step(double metric, std::source_location loc) {
  internal::LineScope line(loc);
  WEFT_CHECK(!is_capturing(), "ReduceLROnPlateau: called inside a compiled function; need a call between steps");
  if (better(metric)) {
    best_ = metric;
    bad_ = 0;
  } else {
    ++bad_;
  }
  if (cooldown_ > 0) {
    --cooldown_;
    bad_ = 0;
  }
  if (bad_ <= options_.patience) return;
  rate_ = lr_.value().item<double>();  // another caller may have set lr
  const double lower = std::max(rate_ * options_.factor, options_.min_lr);
  cooldown_ = options_.cooldown;
  bad_ = 0;
  if (rate_ - lower <= options_.eps) return;
  internal::set_lr(lr_, lower, "ReduceLROnPlateau");
  rate_ = lower;
}

std::map<std::string, Tensor> ReduceLROnPlateau::state_dict() const {
  return {{"best", tensor(best_)},
          {"lr", tensor(rate_)},
          {"num_bad_epochs", tensor(bad_)},
          {"cooldown_counter", tensor(cooldown_)}};
}

void ReduceLROnPlateau::load_state_dict(const std::map<std::string, Tensor>& values, std::source_location loc) {
  internal::LineScope line(loc);
  const char* op = "ReduceLROnPlateau";
  const auto best = number<double>(values, "best", op), rate = number<double>(values, "lr", op);
  const auto bad = number<int64_t>(values, "num_bad_epochs", op),
             left = number<int64_t>(values, "cooldown_counter", op);
  check_size(values, 4, op);
  WEFT_CHECK(bad >= 0 && left >= 0, "load_state_dict: ", op, ": num_bad_epochs is ", bad, " and cooldown_counter ",
             left, "; need numbers >= 0");
  internal::set_lr(lr_, rate, op);
  best_ = best, rate_ = rate, bad_ = bad, cooldown_ = left;
}

}  // namespace weft::optim
