#include "models/optim/optimizer.h"

#include <cmath>
#include <unordered_map>

#include "framework/autodiff/depends.h"
#include "framework/dispatch/state/state.h"
#include "framework/dispatch/state/torn.h"
#include "models/optim/cells.h"
#include "ops/core/creation.h"
#include "ops/core/pointwise.h"

namespace weft::optim {
namespace {

// The names in checkpoints, also for buffers that a user assigned.
constexpr const char *kLrName = "opt.lr", *kStepsName = "opt.steps";

DType arithmetic(DType t) { return t == kFloat64 ? kFloat64 : kFloat32; }

double checked_lr(double value, std::source_location loc) {
  internal::LineScope line(loc);
  internal::check_lr(value, "optimiser");
  return value;
}

// The device of the optimiser's cells. Throws inside a compiled function.
Device checked_device(const std::vector<ParamGroup>& groups, std::source_location loc) {
  internal::LineScope line(loc);
  WEFT_CHECK_AS(kFailedPrecondition, !is_capturing(),
                "optimiser: made inside a compiled function; make it before the step, which then keeps its state");
  for (const ParamGroup& g : groups)
    if (!g.params.empty()) return g.params[0].type().device;
  return {};
}

}  // namespace

std::vector<ParamGroup> decay_groups(const std::vector<Parameter>& params, double weight_decay) {
  ParamGroup decayed{.weight_decay = weight_decay}, plain{.weight_decay = 0};
  for (const Parameter& p : params) (p.shape().size() >= 2 ? decayed : plain).params.push_back(p);
  std::vector<ParamGroup> groups;
  if (!decayed.params.empty()) groups.push_back(std::move(decayed));
  if (!plain.params.empty()) groups.push_back(std::move(plain));
  return groups;
}

Optimizer::StateOf Optimizer::like_parameter(std::vector<std::string> names) {
  return [names = std::move(names)](const Parameter& p) {
    std::vector<StateTensor> state;
    for (const std::string& name : names) state.push_back({name, p.shape()});
    return state;
  };
}

Optimizer::Optimizer(std::vector<ParamGroup> groups, double lr_value, double weight_decay, const StateOf& state_of,
                     std::source_location loc)
    : lr(full({}, checked_lr(lr_value, loc), {.dtype = kFloat64}).to(checked_device(groups, loc)), kLrName, loc),
      steps(zeros({}, {.dtype = kInt64}).to(checked_device(groups, loc)), kStepsName, loc) {
  internal::LineScope line(loc);
  internal::StateNames names;
  for (const ParamGroup& group : groups) {
    const double decay = group.weight_decay.value_or(weight_decay);
    WEFT_CHECK(std::isfinite(decay) && decay >= 0, "optimiser: weight_decay is ", decay, "; need a finite number >= 0");
    WEFT_CHECK(std::isfinite(group.lr_scale) && group.lr_scale >= 0, "optimiser: lr_scale is ", group.lr_scale,
               "; need a finite number >= 0");
    for (const Parameter& p : group.params) {
      WEFT_CHECK(is_floating(p.dtype()) && itemsize(p.dtype()) > 1, "optimiser: parameter '", p.name(), "' is ",
                 p.type(), "; need a floating-point dtype of 16 bits or more");
      for (const Slot& other : slots_)
        WEFT_CHECK(!(other.param == p), "optimiser: ", internal::shown(p, slots_.size()),
                   " is given twice; need each once");
      const std::string name = names.add(p);
      internal::mark_trained(p);
      Slot slot{.param = p, .weight_decay = decay, .lr_scale = group.lr_scale};
      for (const StateTensor& state : state_of(p)) {
        const TensorType type{.dtype = arithmetic(p.dtype()), .device = p.type().device, .shape = state.shape};
        slot.state.emplace_back(
            type, [&] { return full(type.shape, state.start, {.dtype = type.dtype, .device = type.device}); },
            str_cat(name, ".", state.name));
      }
      slots_.push_back(std::move(slot));
    }
  }
  WEFT_CHECK(!slots_.empty(), "optimiser: got no parameters; need one or more");
}

std::vector<Parameter> Optimizer::parameters(bool trainable) const {
  std::vector<Parameter> out;
  for (const Slot& s : slots_)
    if (!trainable || s.param.requires_grad()) out.push_back(s.param);
  return out;
}

void Optimizer::set_lr(double value, std::source_location loc) const {
  internal::LineScope line(loc);
  internal::set_lr(lr, value, "set_lr");
}

void Optimizer::minimize(const Tensor& loss, std::source_location loc) {
  internal::LineScope line(loc);
  const std::vector<Parameter> trained = parameters(true);
  WEFT_CHECK_AS(kFailedPrecondition, !trained.empty(), "minimize: all ", slots_.size(),
                " parameters of the optimiser are frozen; need one or more with requires_grad(true)");
  const Gradients grads = grad(loss, trained, {}, loc);
  WEFT_CHECK_AS(
      kFailedPrecondition, internal::depends_on(loss, trained), "minimize: the loss depends on none of the ",
      trained.size(), " parameters of the optimiser, as of '", trained[0].name(),
      "'; need a loss of its model: make the optimiser after replacing a layer, and use no detach() or NoGrad");
  step(grads, loc);
}

std::vector<Optimizer::Slot*> Optimizer::slots_of(const Gradients& grads) {
  std::vector<Slot*> all, trained;
  for (Slot& s : slots_) {
    all.push_back(&s);
    if (s.param.requires_grad()) trained.push_back(&s);
  }
  if (grads.parameters.empty()) {
    WEFT_CHECK(grads.size() == all.size() || grads.size() == trained.size(), "step: got ", grads.size(),
               " gradients; need one for each of ", all.size(), " parameters or of the ", trained.size(),
               " that are not frozen, in the order of parameters()");
    return grads.size() == all.size() ? all : trained;
  }
  WEFT_CHECK(grads.size() == grads.parameters.size(), "step: got ", grads.size(), " gradients of ",
             grads.parameters.size(), " parameters; need one gradient for each");
  std::unordered_map<const Cell*, Slot*> slots;
  for (Slot* s : all) slots.emplace(&s->param.cell(), s);
  std::vector<Slot*> found;
  for (const Parameter& p : grads.parameters) {
    const auto at = slots.find(&p.cell());
    WEFT_CHECK(at != slots.end(), "step: got a gradient of ", internal::shown(p, found.size()),
               ", which this optimiser does not update or got twice; need one gradient for each of its parameters: "
               "grad(loss, opt.parameters(true))");
    found.push_back(at->second);
    slots.erase(at);
  }
  for (const Slot* s : trained)
    WEFT_CHECK(!slots.contains(&s->param.cell()), "step: got no gradient of ",
               internal::shown(s->param, static_cast<size_t>(s - slots_.data())),
               "; need one gradient for each parameter that is not frozen: grad(loss, opt.parameters(true))");
  return found;
}

void Optimizer::step(const Gradients& grads, std::source_location loc) {
  internal::LineScope here(loc);
  const std::vector<Slot*> slots = slots_of(grads);
  auto skipped = [&](size_t i) { return !slots[i]->param.requires_grad() || !grads[i].defined(); };
  for (size_t i = 0; i < grads.size(); ++i)  // before anything changes
    WEFT_CHECK(skipped(i) || grads[i].shape() == slots[i]->param.shape(), "step: gradient ", i, " has shape ",
               grads[i].shape(), ", parameter '", slots[i]->param.name(), "' ", slots[i]->param.shape(),
               "; need gradients in the order of parameters()");
  NoGrad guard;
  const Autocast off(std::nullopt);
  NameScope scope("opt");
  steps.set(steps.value() + 1);
  const Tensor step = steps.value().to(kFloat64);
  for (size_t i = 0; i < grads.size(); ++i) {
    if (skipped(i)) continue;
    Slot& s = *slots[i];
    const DType dtype = arithmetic(s.param.dtype());
    Update u{.value = s.param.value().to(dtype),
             .grad = grads[i].to(dtype),
             .lr = lr.value().to(dtype),
             .step = step,
             .weight_decay = s.weight_decay};
    if (s.lr_scale != 1) u.lr = u.lr * s.lr_scale;
    for (const Buffer& b : s.state) u.state.push_back(b.value());
    const Tensor value = updated(u);
    for (size_t k = 0; k < s.state.size(); ++k) s.state[k].set(u.state[k]);
    s.param.set(value.to(s.param.dtype()));
  }
}

std::vector<std::pair<std::string, CellHandle>> Optimizer::named_cells() const {
  std::vector<std::pair<std::string, CellHandle>> out{{kLrName, lr}, {kStepsName, steps}};
  for (const Slot& s : slots_)
    for (const Buffer& b : s.state) out.emplace_back(b.name(), b);
  return out;
}

std::map<std::string, Tensor> Optimizer::state_dict(std::vector<std::string>* torn, std::source_location loc) const {
  internal::LineScope line(loc);
  return whole_values(named_cells(), torn);
}

// For check_cells(): lr and steps are scalars.
static constexpr const char* kOwner = "optimiser";
static constexpr size_t kScalars = 2;

void Optimizer::load_state_dict(const std::map<std::string, Tensor>& values, std::source_location loc) const {
  internal::LineScope line(loc);
  internal::set_cells(named_cells(), values, kOwner, kScalars);
}

std::vector<std::pair<std::string, CellHandle>> Optimizer::cells_for(
    const std::map<std::string, Tensor>& values) const {
  auto cells = named_cells();
  internal::check_cells(cells, values, kOwner, kScalars);
  return cells;
}

}  // namespace weft::optim
