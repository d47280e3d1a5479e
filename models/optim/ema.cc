#include "models/optim/ema.h"

#include "framework/dispatch/state/state.h"
#include "framework/dispatch/state/torn.h"
#include "models/optim/cells.h"
#include "ops/core/creation.h"
#include "ops/core/pointwise.h"

namespace weft::optim {

constexpr const char* kUpdatesName = "ema.updates";

EMA::EMA(const std::vector<Parameter>& params, double decay, std::source_location loc)
    : decay_(decay), params_(params) {
  internal::LineScope line(loc);
  WEFT_CHECK(!params.empty(), "EMA: got no parameters; need one or more");
  WEFT_CHECK(decay >= 0 && decay <= 1, "EMA: decay is ", decay, "; need a number from 0 to 1");
  updates = Buffer(zeros({}, {.dtype = kInt64}).to(params[0].type().device), kUpdatesName);
  internal::StateNames names;
  for (size_t i = 0; i < params.size(); ++i) {
    const Parameter& p = params[i];
    for (size_t k = 0; k < i; ++k)
      WEFT_CHECK(!(params[k] == p), "EMA: ", internal::shown(p, i), " is given twice; need each once");
    TensorType type = p.type();
    if (type.dtype != kFloat64) type.dtype = kFloat32;
    means_.emplace_back(
        type, [&] { return zeros(type.shape, {.dtype = type.dtype, .device = type.device}); },
        str_cat(names.add(p), ".ema"));
  }
}

void EMA::update(std::source_location loc) const {
  internal::LineScope line(loc);
  NoGrad guard;
  NameScope scope("ema");
  const Tensor first = eq(updates.value(), 0);
  for (size_t i = 0; i < params_.size(); ++i) {
    const Tensor mean = means_[i].value(), p = params_[i].value().to(mean.dtype());
    means_[i].set(where(first, p, mean + (p - mean) * (1 - decay_)));
  }
  updates.set(updates.value() + 1);
}

void EMA::check_updated(const char* what) const {
  WEFT_CHECK(!is_capturing(), what, ": called inside a compiled function; need a call between steps");
  WEFT_CHECK_AS(kFailedPrecondition, updates.value().item<int64_t>() > 0, what,
                ": there is no mean yet; need update() first");
}

void EMA::copy_to_parameters(std::source_location loc) const {
  internal::LineScope line(loc);
  check_updated("EMA::copy_to_parameters");
  NoGrad guard;
  for (size_t i = 0; i < params_.size(); ++i) params_[i].set(means_[i].value().to(params_[i].dtype()));
}

void EMA::swap(std::source_location loc) const {
  internal::LineScope line(loc);
  check_updated("EMA::swap");
  NoGrad guard;
  for (size_t i = 0; i < params_.size(); ++i) {
    const Tensor p = params_[i].value();
    params_[i].set(means_[i].value().to(p.dtype()));
    means_[i].set(p.to(means_[i].dtype()));
  }
}

std::vector<Tensor> EMA::values() const {
  std::vector<Tensor> out;
  for (const Buffer& b : means_) out.push_back(b.value());
  return out;
}

std::vector<std::pair<std::string, CellHandle>> EMA::named_cells() const {
  std::vector<std::pair<std::string, CellHandle>> out{{kUpdatesName, updates}};
  for (const Buffer& b : means_) out.emplace_back(b.name(), b);
  return out;
}

std::map<std::string, Tensor> EMA::state_dict(std::vector<std::string>* torn, std::source_location loc) const {
  internal::LineScope line(loc);
  return whole_values(named_cells(), torn);
}

void EMA::load_state_dict(const std::map<std::string, Tensor>& values, std::source_location loc) const {
  internal::LineScope line(loc);
  internal::set_cells(named_cells(), values, "EMA", /*scalars=*/1);
}

}  // namespace weft::optim
