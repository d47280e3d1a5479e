#include "models/nn/module.h"

#include <algorithm>
#include <unordered_set>

#include "framework/base/nearest.h"
#include "framework/base/one_line.h"
#include "framework/dispatch/state/torn.h"
#include "framework/io/utf8.h"
#include "ops/core/creation.h"

namespace weft::internal {

thread_local constinit CallOutputs* call_outputs = nullptr;

CallOutputs::CallOutputs(const std::vector<std::string>& paths)
    : capture_(thread_state.capture), outer_(std::exchange(call_outputs, this)) {
  for (const std::string& path : paths) wanted_.push_back({path, {}});
}
CallOutputs::~CallOutputs() { call_outputs = outer_; }

void CallOutputs::add(std::string_view path, std::span<const Tensor> returned) {
  if (outer_) outer_->add(path, returned);
  if (path.empty()) return;
  if (std::find(called_.begin(), called_.end(), path) == called_.end()) called_.emplace_back(path);
  for (Wanted& w : wanted_) {
    if (w.path != path) continue;
    for (const Tensor& t : returned)
      if (t.defined()) w.returned.push_back(t);
    w.inside |= thread_state.capture != capture_;
  }
}

std::vector<std::vector<Tensor>> CallOutputs::take() const {
  std::vector<std::vector<Tensor>> out;
  for (const Wanted& w : wanted_) {
    const auto near = [&] {
      const std::string name = nearest_name(w.path, called_, w.path.size());
      return name.empty() ? name : str_cat(" (nearest: '", name, "')");
    };
    WEFT_CHECK_AS(kNotFound, std::find(called_.begin(), called_.end(), w.path) != called_.end(),
                  "with_outputs: no module '", w.path, "' was called", near(),
                  "; need the path of a module whose call operator has a CallScope and returns call.result(y)");
    WEFT_CHECK_AS(
        kFailedPrecondition, !w.inside, "with_outputs: module '", w.path,
        "' was called inside checkpoint, a loop, vmap or a compiled function, which its value does not leave; need a "
        "module that is called outside of them, or compile(with_outputs(...))");
    out.push_back(w.returned);
  }
  return out;
}

}  // namespace weft::internal

namespace weft::nn {

using namespace internal;

namespace {

// The clone of a slot, with this value, registered in `registry`.
template <class T>
Ref<RegisteredSlot<T>> clone_slot(CloneScope& scope, const Ref<RegisteredSlot<T>>& slot, Ref<T> value,
                                  const Ref<internal::RegistryPlace>& registry) {
  if (Ref<RefCounted> found = scope.find(slot.get()))
    return Ref<RegisteredSlot<T>>(static_cast<RegisteredSlot<T>*>(found.get()));
  auto made = make_ref<RegisteredSlot<T>>();
  made->value = std::move(value);
  made->path = slot->path;
  made->enter(registry);
  scope.remember(slot.get(), made);
  return made;
}

// The copy that weft::clone() makes: its cells are new.
Ref<ModuleState> clone_of(const Ref<ModuleState>& state) {
  CloneScope& scope = *internal::clone_scope;
  if (!state) return state;
  if (Ref<RefCounted> found = scope.find(state.get())) return Ref<ModuleState>(static_cast<ModuleState*>(found.get()));
  Ref<ModuleState> made = make_ref<ModuleState>();
  scope.remember(state.get(), made);
  made->training.set(state->training.peek());
  made->path = state->path;
  made->type = state->type;
  for (auto cells : {&ModuleState::parameters, &ModuleState::buffers})
    for (const auto& m : (*state).*cells)
      ((*made).*cells)
          .push_back({m.name, clone_slot(scope, m.slot, scope.of(m.slot->value), made->place), m.full_precision});
  for (const auto& m : state->children)
    made->children.push_back({m.name, clone_slot(scope, m.slot, clone_of(m.slot->value), made->place), false, m.type});
  return made;
}

// Call it before `owner` gets another state: later assignments to its members belong to the new state. Copies of
// `owner` keep the old state unchanged.
void let_members_go(ModuleState* state, const Module* owner) {
  if (!state || state->place->object != owner) return;
  for (auto* cells : {&state->parameters, &state->buffers})
    for (auto& member : *cells) member.slot->hold(nullptr);
  for (auto& child : state->children) child.slot->hold(nullptr);
  state->place->object = nullptr;
}

// Sets the paths of a registered module and the modules below it.
void set_path(RegisteredSlot<ModuleState>& slot, const std::string& path) {
  slot.path = path;
  if (!slot.value) return;
  slot.value->path = path;
  for (const auto& child : slot.value->children) set_path(*child.slot, path + "." + child.name);
}

// Calls f(path, state) for a state and all its descendants, parents first.
template <class F>
void visit(const ModuleState& s, const std::string& prefix, const F& f) {
  f(prefix, s);
  for (const auto& child : s.children)
    if (child.slot->value) visit(*child.slot->value, prefix + child.name + ".", f);
}

// Listing a child must not shorten the path that its parent assigned.
void stamp(const CellHandle& cell, const std::string& path) {
  const std::string& old = cell.name();
  if (old != path && !old.ends_with("." + path)) cell.set_name(path);
}

// The parameters or buffers of a state and its descendants with their paths, each once.
template <class T>
std::vector<std::pair<std::string, T>> named(const ModuleState& state,
                                             std::vector<ModuleState::Member<Cell>> ModuleState::*cells) {
  std::vector<std::pair<std::string, T>> out;
  std::unordered_set<const Cell*> seen;
  visit(state, "", [&](const std::string& prefix, const ModuleState& s) {
    for (const auto& member : s.*cells) {
      if (!member.slot->value || !seen.insert(member.slot->value.get()).second) continue;
      const T handle(member.slot->value);
      stamp(handle, prefix + member.name);
      out.emplace_back(prefix + member.name, handle);
    }
  });
  return out;
}

// The slot of a handle that is registered in `s`.
template <class T>
const Ref<RegisteredSlot<T>>& entered(const Ref<RegisteredSlot<T>>& slot, const ModuleState& s) {
  slot->enter(s.place);
  return slot;
}

// The state of a child with its type: an assigned module has the member's type.
const Ref<ModuleState>& typed(const ModuleState::Member<ModuleState>& child) {
  if (!child.slot->value->type) child.slot->value->type = child.type;
  return child.slot->value;
}

void check_name(const ModuleState& s, const std::string& name) {
  WEFT_CHECK(str_cat(".", name, ".").find("..") == std::string::npos, "Module: the name '", name,
             "' is empty or has an empty part; need another name");
  WEFT_CHECK(io::is_utf8(name), "Module: the name '", one_line(name, 200),
             "' is not UTF-8, the encoding of names in files; need another name");
  const auto continues = [](const std::string& path, const std::string& start) {
    return path.size() > start.size() && path[start.size()] == '.' && path.starts_with(start);
  };
  const auto check = [&](const auto& list) {
    for (const auto& entry : list) {
      WEFT_CHECK(entry.name != name, "Module: the name '", name, "' is registered twice; need another name");
      WEFT_CHECK(!continues(name, entry.name) && !continues(entry.name, name), "Module: one of the names '", entry.name,
                 "' and '", name, "' continues the other, so that two paths may be equal; need another name");
    }
  };
  check(s.parameters);
  check(s.buffers);
  check(s.children);
}

}  // namespace

ModuleState& Module::checked_state() const {
  WEFT_CHECK_AS(
      kFailedPrecondition, state_,
      "Module: used after a move from it, or before an assignment to one made from nullptr; need the new module, or a "
      "copy instead of the move (a copy shares the parameters)");
  return *state_;
}

Module::Module() : state_(make_ref<ModuleState>()) {}
Module::Module(const Module& o)
    : state_(internal::clone_scope && o.state_
                 ? Registered<ModuleState>::clone_of(o.state_, clone_of(o.state_.ref()), *internal::clone_scope)
                 : o.state_) {
  if (internal::clone_scope && state_ && o.state_->place->object == &o) state_->place->object = this;
}
Module::Module(Module&& o) noexcept : state_(std::move(o.state_)) {
  if (state_ && state_->place->object == &o) state_->place->object = this;
}
Module& Module::operator=(const Module& o) {
  if (this == &o) return *this;
  let_members_go(state_.ref().get(), this);
  state_ = o.state_;
  if (state_.followed()) set_path(*state_.slot(), std::string(state_.slot()->path));
  return *this;
}
Module& Module::operator=(Module&& o) noexcept {
  if (this == &o) return *this;
  let_members_go(state_.ref().get(), this);
  state_ = std::move(o.state_);
  if (state_ && state_->place->object == &o) state_->place->object = this;
  if (state_.followed()) set_path(*state_.slot(), std::string(state_.slot()->path));
  return *this;
}

std::vector<std::pair<std::string, Parameter>> Module::named_parameters() const {
  return named<Parameter>(checked_state(), &ModuleState::parameters);
}
std::vector<std::pair<std::string, Buffer>> Module::named_buffers() const {
  return named<Buffer>(checked_state(), &ModuleState::buffers);
}

std::vector<Parameter> Module::parameters(std::source_location loc) const {
  internal::LineScope line(loc);
  std::vector<Parameter> out;
  for (auto& [name, p] : named_parameters()) out.push_back(std::move(p));
  return out;
}

std::vector<std::pair<std::string, CellHandle>> Module::named_cells() const {
  std::vector<std::pair<std::string, CellHandle>> out;
  for (auto& [name, p] : named_parameters()) out.emplace_back(name, p);
  for (auto& [name, b] : named_buffers()) out.emplace_back(name, b);
  return out;
}

std::vector<std::pair<std::string, Module>> Module::named_children() const {
  std::vector<std::pair<std::string, Module>> out;
  for (const auto& child : checked_state().children)
    if (child.slot->value) out.emplace_back(child.name, Module(typed(child)));
  return out;
}

std::vector<std::pair<std::string, Module>> Module::named_modules() const {
  checked_state();
  std::vector<std::pair<std::string, Module>> out;
  std::unordered_set<const ModuleState*> seen;
  const auto add = [&](const auto& self, const std::string& path, const Ref<ModuleState>& state) -> void {
    if (!seen.insert(state.get()).second) return;
    out.emplace_back(path, Module(state));
    for (const auto& child : state->children)
      if (child.slot->value) self(self, path.empty() ? child.name : path + "." + child.name, typed(child));
  };
  add(add, "", state_.ref());
  return out;
}

static std::vector<Module> without_names(std::vector<std::pair<std::string, Module>> named) {
  std::vector<Module> out;
  for (auto& [name, m] : named) out.push_back(std::move(m));
  return out;
}

std::vector<Module> Module::children() const { return without_names(named_children()); }
std::vector<Module> Module::modules() const { return without_names(named_modules()); }

const Module& Module::apply(const std::function<void(const Module&)>& fn) const {
  for (const Module& child : children()) child.apply(fn);
  fn(*this);
  return *this;
}

int64_t Module::num_parameters(bool trainable) const {
  int64_t n = 0;
  for (const auto& [name, p] : named_parameters())
    if (!trainable || p.requires_grad()) n += p.numel();
  return n;
}

StateDict Module::state_dict(std::vector<std::string>* torn, std::source_location loc) const {
  internal::LineScope line(loc);
  return whole_values(named_cells(), torn);
}

namespace {

std::string nearest(const std::string& name, const std::vector<std::string>& candidates) {
  const std::string best = nearest_name(name, candidates, name.size() / 2 + 1);
  return best.empty() ? "" : str_cat(" (nearest there: '", best, "')");
}

// "2 missing: 'a' (nearest there: 'b'), 'c'" for the first few names.
void append_names(std::string& text, const char* what, const std::vector<std::string>& names,
                  const std::vector<std::string>& candidates) {
  constexpr size_t kShown = 8;
  if (names.empty()) return;
  text += str_cat(text.empty() ? "" : "; ", names.size(), " ", what, ": ");
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i)
    text += str_cat(i ? ", '" : "'", names[i], "'", nearest(names[i], candidates));
  if (names.size() > kShown) text += ", ...";
}

}  // namespace

Parameter Module::get_parameter(const std::string& path, std::source_location loc) const {
  internal::LineScope line(loc);
  std::vector<std::string> names;
  for (const auto& [name, p] : named_parameters()) {
    if (name == path) return p;
    names.push_back(name);
  }
  WEFT_CHECK(false, "get_parameter: there is no '", path, "'", nearest(path, names),
             "; need a path of named_parameters()");
  return {};
}

void Module::load_state_dict(const StateDict& values, bool strict, std::source_location loc) const {
  internal::LineScope line(loc);
  const auto cells = cells_for(values, strict);
  NoGrad guard;
  for (const auto& [name, cell] : cells) cell.set(values.at(name).to(cell.dtype()).to(cell.type().device));
}

std::vector<std::pair<std::string, CellHandle>> Module::cells_for(const StateDict& values, bool strict) const {
  std::vector<std::string> missing, unexpected, known;
  std::string misfits;
  std::vector<std::pair<std::string, CellHandle>> fitting;
  for (const auto& [name, cell] : named_cells()) {
    known.push_back(name);
    auto it = values.find(name);
    if (it == values.end()) {
      missing.push_back(name);
    } else if (const std::string problem = misfit(cell, it->second); !problem.empty()) {
      misfits += str_cat(misfits.empty() ? "" : ", ", "'", name, "' ", problem);
    } else {
      fitting.emplace_back(name, cell);
    }
  }
  std::sort(known.begin(), known.end());
  for (const auto& [name, value] : values)
    if (!std::binary_search(known.begin(), known.end(), name)) unexpected.push_back(name);
  std::string problems;
  if (strict) {
    append_names(problems, "missing", missing, unexpected);
    append_names(problems, "unexpected", unexpected, known);
  }
  if (!misfits.empty()) problems += (problems.empty() ? "" : "; ") + misfits;
  WEFT_CHECK(problems.empty(), "load_state_dict: ", problems);
  return fitting;
}

void Module::to(DType dtype, std::source_location loc) const {
  internal::LineScope line(loc);
  WEFT_CHECK(is_floating(dtype), "Module::to: cannot convert parameters to ", to_string_view(dtype),
             "; need a floating-point type");
  for (const auto& [name, cell] : named_cells())
    if (is_floating(cell.dtype())) cell.convert(dtype);
}

void Module::cast_weights(DType dtype, std::source_location loc) const {
  internal::LineScope line(loc);
  WEFT_CHECK(is_floating(dtype), "Module::cast_weights: cannot convert parameters to ", to_string_view(dtype),
             "; need a floating-point type");
  visit(checked_state(), "", [&](const std::string&, const ModuleState& s) {
    for (const auto& member : s.parameters)
      if (member.slot->value && !member.full_precision) Parameter(member.slot->value).convert(dtype);
  });
}

void Module::to(Device device, std::source_location loc) const {
  internal::LineScope line(loc);
  for (const auto& [name, cell] : named_cells()) cell.convert(device);
}

void Module::train(bool on) const {
  visit(checked_state(), "", [&](const std::string&, const ModuleState& s) { s.training.set(on); });
}

void Module::freeze(bool on) const {
  for (const Parameter& p : parameters()) p.requires_grad(!on);
}

void Module::register_module(const std::string& name, const Module& child, std::source_location loc) {
  internal::LineScope line(loc);
  check_name(checked_state(), name);
  WEFT_CHECK(child.state_ && child.state_.ref() != state_.ref(), "register_module: '", name,
             "' is the module itself, or was moved from or made from nullptr; need another module");
  visit(*child.state_, "", [&](const std::string& path, const ModuleState& s) {
    WEFT_CHECK(&s != state_.ref().get(), "register_module: '", name, "' contains this module, as '",
               path.substr(0, path.empty() ? 0 : path.size() - 1), "'; need a tree of modules");
  });
  state_->place->object = this;
  state_->children.push_back({name, entered(child.state_.slot(), *state_), false, &typeid(child)});
  set_path(*child.state_.slot(), state_->path.empty() ? name : state_->path + "." + name);
}
void Module::register_parameter(const std::string& name, const Parameter& parameter, bool full_precision,
                                std::source_location loc) {
  internal::LineScope line(loc);
  check_name(checked_state(), name);
  WEFT_CHECK(parameter.defined(), "register_parameter: '", name, "' has no cell; need a parameter with a value");
  state_->place->object = this;
  state_->parameters.push_back({name, entered(parameter.slot(), *state_), full_precision});
}
void Module::register_buffer(const std::string& name, const Buffer& buffer, std::source_location loc) {
  internal::LineScope line(loc);
  check_name(checked_state(), name);
  WEFT_CHECK(buffer.defined(), "register_buffer: '", name, "' has no cell; need a buffer with a value");
  state_->place->object = this;
  state_->buffers.push_back({name, entered(buffer.slot(), *state_)});
}

Parameter Module::register_parameter(const std::string& name, const Tensor& value, std::source_location loc) {
  internal::LineScope line(loc);
  Parameter parameter(value);
  register_parameter(name, parameter, /*full_precision=*/false, loc);
  return parameter;
}
Buffer Module::register_buffer(const std::string& name, const Tensor& value, std::source_location loc) {
  internal::LineScope line(loc);
  Buffer buffer(value);
  register_buffer(name, buffer, loc);
  return buffer;
}

Parameter normal_parameter(const Shape& shape, double std) {
  return Parameter(TensorType{.shape = shape}, [&] { return normal(shape, 0, std); }, "", {});
}
Parameter uniform_parameter(const Shape& shape, double bound) {
  return Parameter(TensorType{.shape = shape}, [&] { return uniform(shape, -bound, bound); }, "", {});
}
Parameter constant_parameter(const Shape& shape, double value) {
  return Parameter(TensorType{.shape = shape}, [&] { return full(shape, value); }, "", {});
}
Buffer zeros_buffer(const Shape& shape, DType dtype) {
  return Buffer(TensorType{.dtype = dtype, .shape = shape}, [&] { return zeros(shape, {.dtype = dtype}); }, "", {});
}

}  // namespace weft::nn
