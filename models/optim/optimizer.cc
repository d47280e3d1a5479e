#include "models/optim/optimizer.h"

#include <unordered_map>

#include "framework/dispatch/state.h"
#include "framework/dispatch/torn.h"
#include "ops/core/creation.h"
#include "ops/core/pointwise.h"

namespace weft::optim {
namespace {

DType arithmetic(DType t) { return t == kFloat64 ? kFloat64 : kFloat32; }

Device device_of(const std::vector<ParamGroup>& groups) {
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

Optimizer::Optimizer(std::vector<ParamGroup> groups, double lr_value, double weight_decay,
                     const std::vector<std::string>& state_names, std::source_location loc)
    : lr(full({}, lr_value).to(device_of(groups)), "opt.lr"),
      steps(zeros({}, {.dtype = kInt64}).to(device_of(groups)), "opt.steps") {
  internal::LineScope line(loc);
  WEFT_CHECK(lr_value >= 0, "optimiser: lr is ", lr_value, "; need a number >= 0");
  for (const ParamGroup& group : groups) {
    for (const Parameter& p : group.params) {
      for (const Slot& other : slots_)
        WEFT_CHECK(!(other.param == p), "optimiser: parameter '", p.name(), "' is given twice; need each once");
      const std::string name = p.name().empty() ? str_cat("param", slots_.size()) : p.name();
      Slot slot{.param = p, .weight_decay = group.weight_decay.value_or(weight_decay), .lr_scale = group.lr_scale};
      const TensorType type{.dtype = arithmetic(p.dtype()), .device = p.type().device, .shape = p.shape()};
      for (const std::string& state : state_names)
        slot.state.emplace_back(
            type, [&] { return zeros(type.shape, {.dtype = type.dtype, .device = type.device}); },
            str_cat(name, ".", state));
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

// Passes the number as data. As a constant, each value would need a kernel of its own.
void Optimizer::set_lr(double value) const { lr.set(full({}, value).to(lr.type().device)); }

void Optimizer::minimize(const Tensor& loss, std::source_location loc) {
  step(grad(loss, parameters(true), {}, loc), loc);
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
    WEFT_CHECK(at != slots.end(), "step: got a gradient of parameter '", p.name(),
               "', which this optimiser does not update or got twice; need one gradient for each of its parameters: "
               "grad(loss, opt.parameters(true))");
    found.push_back(at->second);
    slots.erase(at);
  }
  for (const Slot* s : trained)
    WEFT_CHECK(!slots.contains(&s->param.cell()), "step: got no gradient of parameter '", s->param.name(),
               "'; need one gradient for each parameter that is not frozen: grad(loss, opt.parameters(true))");
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
  std::vector<std::pair<std::string, CellHandle>> out{{lr.name(), lr}, {steps.name(), steps}};
  for (const Slot& s : slots_)
    for (const Buffer& b : s.state) out.emplace_back(b.name(), b);
  return out;
}

std::map<std::string, Tensor> Optimizer::state_dict(std::vector<std::string>* torn) const {
  return whole_values(named_cells(), torn);
}

void Optimizer::load_state_dict(const std::map<std::string, Tensor>& values) const {
  const auto cells = named_cells();
  std::string problems;
  size_t found = 0;
  for (const auto& [name, cell] : cells) {
    auto it = values.find(name);
    if (it == values.end()) {
      problems += str_cat(problems.empty() ? "" : ", ", "'", name, "' is missing");
      continue;
    }
    ++found;
    if (it->second.shape() != cell.shape())
      problems +=
          str_cat(problems.empty() ? "" : ", ", "'", name, "' has shape ", it->second.shape(), ", need ", cell.shape());
  }
  if (found < values.size()) {
    for (const auto& [name, value] : values) {
      bool known = false;
      for (const auto& [own, cell] : cells) known |= own == name;
      if (!known) problems += str_cat(problems.empty() ? "" : ", ", "'", name, "' is unexpected");
    }
  }
  WEFT_CHECK(problems.empty(), "load_state_dict: optimiser state: ", problems);
  for (const auto& [name, cell] : cells) cell.set(values.at(name).to(cell.dtype()).to(cell.type().device));
}

}  // namespace weft::optim
