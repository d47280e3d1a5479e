// Module: a named tree of parameters, buffers and child modules. Modules are handles: a copy shares cells and
// train/eval mode with the original; weft::clone(module) makes an independent module. A moved-from module has no
// members: every use but assignment is an error. A module registers its members by name. Assigning to a registered
// member (`net.head = nn::Linear(8, 5)`, `layer.weight = Parameter(w)`) replaces it for parameters(), state_dict(),
// to() and the others, and so does a swap of two members. Assigning to a member of a copy does not.
#pragma once
#include <concepts>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "framework/dispatch/capture.h"
#include "framework/dispatch/parameter.h"

namespace weft::nn {
class Module;
}

namespace weft::internal {

/// The members that a module registers. This type is outside Module because a member type would hide a user's type of
/// the same name in the user's modules.
struct ModuleState final : RefCounted {
  template <class T>
  struct Member {
    std::string name;
    Ref<RegisteredSlot<T>> slot;  // empty after an undefined handle was assigned
    bool full_precision = false;
    const std::type_info* type = nullptr;  // type of a child at its registration
  };
  std::vector<Member<Cell>> parameters, buffers;
  std::vector<Member<ModuleState>> children;
  HostFlag training{true};
  const std::type_info* type = nullptr;                  // type of the module; null until it is listed as a child
  std::string path;                                      // see Module::path
  Ref<RegistryPlace> place = make_ref<RegistryPlace>();  // place of the Module with these members
};

/// The usual members of a pointer to a module, so that model->forward(x) is one error: Module::operator->.
struct NoPointer {
  Parameter weight, bias;
  template <class... T>
  Tensor forward(const T&...) const {
    return {};
  }
  std::vector<Parameter> parameters() const { return {}; }
  std::vector<std::pair<std::string, Parameter>> named_parameters() const { return {}; }
#define WEFT_NO_MEMBER(name) \
  template <class... T>      \
  void name(const T&...) const {}
  WEFT_NO_MEMBER(to)
  WEFT_NO_MEMBER(train)
  WEFT_NO_MEMBER(eval)
  WEFT_NO_MEMBER(zero_grad)
  WEFT_NO_MEMBER(push_back)
  WEFT_NO_MEMBER(save)
  WEFT_NO_MEMBER(load)
#undef WEFT_NO_MEMBER
};

/// Collects the results of the modules of these paths during its lifetime, on this thread.
class CallOutputs {
 public:
  explicit CallOutputs(const std::vector<std::string>& paths);
  ~CallOutputs();
  CallOutputs(const CallOutputs&) = delete;
  void add(std::string_view path, std::span<const Tensor> returned);
  /// For each path, the tensors that its calls returned, in order. Throws NotFound for a path without a call, with the
  /// nearest one, and FailedPrecondition if a call was in a capture of its own (checkpoint, a loop, vmap, compile).
  std::vector<std::vector<Tensor>> take() const;

 private:
  struct Wanted {
    std::string path;
    std::vector<Tensor> returned;
    bool inside = false;  // a capture that began later than this object
  };
  std::vector<Wanted> wanted_;
  std::vector<std::string> called_;  // paths of the calls so far
  const Capture* const capture_;
  CallOutputs* const outer_;
};
extern thread_local constinit CallOutputs* call_outputs;

}  // namespace weft::internal

namespace weft::nn {

/// Values by path, as in PyTorch: "blocks.0.attn.qkv.weight".
using StateDict = std::map<std::string, Tensor>;

class CallScope;

class Module {
 public:
  Module();
  /// A module without members, for a handle that is assigned later: every other use is an error. Layers have it, too:
  /// nn::Linear fc{nullptr}. A template, so that 0 is a number.
  template <std::same_as<std::nullptr_t> N>
  explicit Module(N) {}
  /// Shares the cells of `o`; inside weft::clone(), makes new cells.
  Module(const Module& o);
  Module(Module&& o) noexcept;
  Module& operator=(const Module& o);
  Module& operator=(Module&& o) noexcept;
  virtual ~Module() = default;

  /// Parameters by path, in order of registration; a module's own parameters precede its children's parameters. A
  /// shared parameter appears once, under its first path. Each cell gets its path as its name, unless it has a longer
  /// name with this ending.
  std::vector<std::pair<std::string, Parameter>> named_parameters() const;
  std::vector<Parameter> parameters(std::source_location loc = std::source_location::current()) const;
  std::vector<std::pair<std::string, Buffer>> named_buffers() const;
  /// Parameters, then buffers: the contents of a checkpoint.
  std::vector<std::pair<std::string, CellHandle>> named_cells() const;
  /// The parameter with this path; if there is none, an error names the nearest path.
  Parameter get_parameter(const std::string& path, std::source_location loc = std::source_location::current()) const;
  /// The modules registered in this module, as handles with parameters, modes and paths but without a call operator. A
  /// path is relative to this module.
  std::vector<std::pair<std::string, Module>> named_children() const;
  std::vector<Module> children() const;
  /// This module (with path "") and all modules below it, parents first; a shared module appears once.
  std::vector<std::pair<std::string, Module>> named_modules() const;
  std::vector<Module> modules() const;
  /// Calls fn with each module below this module, children first, then with this module. fn checks a module's type with
  /// is(): model.apply([](const nn::Module& m) { if (m.is<nn::Linear>()) nn::init::zeros(m.get_parameter("bias")); }).
  const Module& apply(const std::function<void(const Module&)>& fn) const;
  /// Whether this is an M or a handle of a module registered as an M.
  template <class M>
  bool is() const {
    return dynamic_cast<const M*>(this) || (state_ && state_->type && *state_->type == typeid(M));
  }
  /// Does not exist: gradients are values.
  template <class... T>
  void zero_grad(const T&...) const {
    static_assert(sizeof...(T) > 99,
                  "zero_grad: remove this call: gradients are values that grad() returns; nothing accumulates");
  }
  /// Does not exist: modules have no hooks.
  template <class... T>
  void register_backward_hook(const T&...) const {
    static_assert(sizeof...(T) > 99,
                  "register_backward_hook: modules have no hooks: write custom_grad around the value");
  }
  /// Do not exist: a call is model(x), and a module is a handle, not a pointer to one.
  template <class... T>
  Tensor forward(const T&...) const {
    static_assert(sizeof...(T) > 99,
                  "forward: write model(x) for model.forward(x), and Tensor operator()(const Tensor& x) const for the "
                  "function of a module of your own");
    return {};
  }
  template <class T = Module>
  const internal::NoPointer* operator->() const {
    static_assert(!std::is_same_v<T, Module>,
                  "Module: a module is a handle, which copies share: write model(x) for model->forward(x), and "
                  "model.parameters() for model->parameters()");
    return nullptr;
  }
  template <class... T>
  void requires_grad_(const T&...) const {
    static_assert(sizeof...(T) > 99, "requires_grad_: write m.freeze() for m.requires_grad_(False), m.freeze(false)");
  }
  /// Number of elements of all parameters, or with `trainable` of the parameters that are not frozen.
  int64_t num_parameters(bool trainable = false) const;

  /// The values of all cells by path; materialises lazy cells. Throws DataLoss, naming the torn cells that a half-way
  /// failed step left. If `torn` is given, returns the values of the other cells instead and sets `torn` to the paths
  /// of torn cells; load_state_dict(values, /*strict=*/false) restores the values.
  StateDict state_dict(std::vector<std::string>* torn = nullptr,
                       std::source_location loc = std::source_location::current()) const;
  /// Sets cells from values of the same shape, converted to the cell's dtype; a cell of integers or bools accepts only
  /// values that the conversion keeps. Throws before it changes anything, and names every entry that is missing,
  /// unexpected or does not fit; strict = false allows missing and unexpected entries.
  void load_state_dict(const StateDict& values, bool strict = true,
                       std::source_location loc = std::source_location::current()) const;
  /// The cells that load_state_dict() sets, by their names in `values`, whose tensors may be on the meta device. Throws
  /// its errors, and changes nothing.
  std::vector<std::pair<std::string, CellHandle>> cells_for(const StateDict& values, bool strict) const;

  /// Converts every floating-point cell; lazy cells stay lazy.
  void to(DType dtype, std::source_location loc = std::source_location::current()) const;
  /// Converts the parameters that layers convert to their input's dtype in every call: all that are not registered as
  /// full precision. A read-only model then stores and converts them once. Lazy parameters stay lazy.
  void cast_weights(DType dtype, std::source_location loc = std::source_location::current()) const;
  /// Moves every cell; lazy cells stay lazy. Make optimisers after this call, because they store their state on the
  /// device of the parameters.
  void to(Device device, std::source_location loc = std::source_location::current()) const;
  void cpu(std::source_location loc = std::source_location::current()) const { to(Device::cpu(), loc); }
  void cuda(int index = 0, std::source_location loc = std::source_location::current()) const {
    to(Device::cuda(index), loc);
  }
  /// Turns dropout on (train) or off (eval), here and in all children. A compiled function is captured once per mode.
  void train(bool on = true) const;
  void eval() const { train(false); }
  bool is_training() const { return checked_state().training.get(); }
  /// The names under which this module is registered in the modules around it: "blocks.3.attn". Errors report it.
  std::string_view path() const { return state_ ? std::string_view(state_->path) : std::string_view(); }
  /// Sets requires_grad of all parameters: frozen parameters get no gradient, and optimisers skip them.
  void freeze(bool on = true) const;

 protected:
  /// The value of an optional bias: an undefined tensor if the handle has no cell.
  static Tensor value_or_none(const Parameter& p) { return p.defined() ? p.value() : Tensor(); }
  /// A dot continues the path. A path must be unique: two names must differ, and no name may begin with another name
  /// and a dot.
  void register_module(const std::string& name, const Module& child,
                       std::source_location loc = std::source_location::current());
  /// Registers a new module and returns it, for a constructor: fc(register_module("fc", nn::Linear(4, 8))).
  template <class M>
  requires std::derived_from<M, Module> M register_module(const std::string& name, M&& child,
                                                          std::source_location loc = std::source_location::current()) {
    register_module(name, static_cast<const Module&>(child), loc);
    return std::move(child);
  }
  template <class M>
  void register_modules(const std::string& name, const std::vector<M>& children,
                        std::source_location loc = std::source_location::current()) {
    for (size_t i = 0; i < children.size(); ++i) register_module(name + "." + std::to_string(i), children[i], loc);
  }
  /// `full_precision`: the layer computes with the parameter in its stored dtype, whatever its input's dtype.
  void register_parameter(const std::string& name, const Parameter& parameter, bool full_precision = false,
                          std::source_location loc = std::source_location::current());
  void register_buffer(const std::string& name, const Buffer& buffer,
                       std::source_location loc = std::source_location::current());
  /// Makes a cell with this value, registers it and returns it: weight(register_parameter("weight", randn({4, 8}))).
  Parameter register_parameter(const std::string& name, const Tensor& value,
                               std::source_location loc = std::source_location::current());
  Buffer register_buffer(const std::string& name, const Tensor& value,
                         std::source_location loc = std::source_location::current());

 private:
  friend class CallScope;
  explicit Module(Ref<internal::ModuleState> state) : state_(std::move(state)) {}
  /// Throws if the module was moved from.
  internal::ModuleState& checked_state() const;

  internal::Registered<internal::ModuleState> state_;
};

/// During its lifetime, ops carry the line of a layer's caller, and errors report this line and the layer's path. A
/// layer's call operator begins with a CallScope. (A constructor has no path yet and begins with a LineScope.)
class CallScope {
 public:
  CallScope(const Module& layer, SourceLine line) : line_(line), name_(layer.checked_state().path, /*path=*/true) {}

  /// Returns `r`, the result of the layer's call operator, and gives it to with_outputs() (models/nn/outputs.h).
  template <class R>
  R result(R r) const {
    if (internal::call_outputs) {
      std::vector<Tensor> all;
      flatten(r, all);
      internal::call_outputs->add(name_.text, all);
    }
    return r;
  }

 private:
  const internal::LineScope line_;
  const internal::OriginName name_;
};

// Lazy parameters: the first read initialises them, and before it they need no memory.
/// Normal with mean 0 and this standard deviation.
Parameter normal_parameter(const Shape& shape, double std);
/// Uniform on [-bound, bound).
Parameter uniform_parameter(const Shape& shape, double bound);
Parameter constant_parameter(const Shape& shape, double value);
/// A buffer of zeros.
Buffer zeros_buffer(const Shape& shape, DType dtype = kFloat32);

}  // namespace weft::nn
