// Module: a named tree of parameters, buffers and child modules. Modules are handles: a copy shares cells and
// train/eval mode with the original; weft::clone(module) makes an independent one. A module that was moved from has no
// members: it can be assigned to, and all else is an error. A module registers its members by
// name. Assigning to a registered member (`net.head = nn::Linear(8, 5)`, `layer.weight = Parameter(w)`) replaces it for
// parameters(), state_dict(), to() and the others, and so does a swap of two members. Assigning to a member of a copy
// does not.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

#include "framework/dispatch/capture.h"
#include "framework/dispatch/parameter.h"

namespace weft::nn {
class Module;
}

namespace weft::internal {

/// What a module registers. Not a member of Module: a member type would hide a user's type of that name in the user's
/// modules.
struct ModuleState final : RefCounted {
  template <class T>
  struct Member {
    std::string name;
    Ref<Slot<T>> slot;  // empty after an undefined handle was assigned
    bool full_precision = false;
    const std::type_info* type = nullptr;  // of a child, when it was registered
  };
  std::vector<Member<Cell>> parameters, buffers;
  std::vector<Member<ModuleState>> children;
  HostFlag training{true};
  const std::type_info* type = nullptr;                  // of the module; null until it is listed as a child
  std::string path;                                      // see Module::path
  Ref<RegistryPlace> place = make_ref<RegistryPlace>();  // of the Module whose members these are
};

}  // namespace weft::internal

namespace weft::nn {

/// Values by path, as in PyTorch: "blocks.0.attn.qkv.weight".
using StateDict = std::map<std::string, Tensor>;

class Module {
 public:
  Module();
  /// Shares the cells of `o`; inside weft::clone(), makes cells of its own.
  Module(const Module& o);
  Module(Module&& o) noexcept;
  Module& operator=(const Module& o);
  Module& operator=(Module&& o) noexcept;
  virtual ~Module() = default;

  /// Parameters by path, in order of registration, those of a module before those of its children. A shared parameter
  /// appears once, under its first path. Each cell gets its path as its name, unless it has a longer one that ends in
  /// it.
  std::vector<std::pair<std::string, Parameter>> named_parameters() const;
  std::vector<Parameter> parameters(std::source_location loc = std::source_location::current()) const;
  std::vector<std::pair<std::string, Buffer>> named_buffers() const;
  /// Parameters, then buffers: the contents of a checkpoint.
  std::vector<std::pair<std::string, CellHandle>> named_cells() const;
  /// The parameter with this path; an error names the nearest one if there is none.
  Parameter get_parameter(const std::string& path, std::source_location loc = std::source_location::current()) const;
  /// The modules registered in this one, as handles: they have parameters, modes and paths, but no call operator. A
  /// path is relative to this module.
  std::vector<std::pair<std::string, Module>> named_children() const;
  std::vector<Module> children() const;
  /// This module (with path "") and all below it, parents first; a shared one appears once.
  std::vector<std::pair<std::string, Module>> named_modules() const;
  std::vector<Module> modules() const;
  /// Calls fn with each module below this one, children first, then with this one. fn finds out with is() what it got:
  /// model.apply([](const nn::Module& m) { if (m.is<nn::Linear>()) nn::init::zeros(m.get_parameter("bias")); }).
  const Module& apply(const std::function<void(const Module&)>& fn) const;
  /// Whether this is an M, or a handle of a module that was registered as an M.
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
  /// Number of elements of all parameters, or with `trainable` of those that are not frozen.
  int64_t num_parameters(bool trainable = false) const;

  /// The values of all cells by path; materialises lazy ones. A step that failed half-way leaves torn cells: then it
  /// throws DataLoss, which names them. With `torn` it returns the values of the other cells, and the paths of the torn
  /// ones there; load_state_dict(values, /*strict=*/false) takes the values back.
  StateDict state_dict(std::vector<std::string>* torn = nullptr,
                       std::source_location loc = std::source_location::current()) const;
  /// Sets cells from values of the same shape, converted to the cell's dtype; a cell of integers or bools takes no
  /// values that this would change. Throws before it changes anything, and names every entry that is missing,
  /// unexpected or does not fit; strict = false allows missing and unexpected ones.
  void load_state_dict(const StateDict& values, bool strict = true,
                       std::source_location loc = std::source_location::current()) const;

  /// Converts every floating-point cell; lazy ones stay lazy.
  void to(DType dtype, std::source_location loc = std::source_location::current()) const;
  /// Converts the parameters that layers convert to their input's dtype in every call: all but those registered as
  /// full precision. A model that is only read then stores and converts them once. Lazy ones stay lazy.
  void cast_weights(DType dtype, std::source_location loc = std::source_location::current()) const;
  /// Moves every cell; lazy ones stay lazy. Make optimisers after this call: they put their state on the device of the
  /// parameters.
  void to(Device device, std::source_location loc = std::source_location::current()) const;
  /// Turns dropout on (train) or off (eval), here and in all children. A compiled function is captured once per mode.
  void train(bool on = true) const;
  void eval() const { train(false); }
  bool is_training() const { return checked_state().training.get(); }
  /// The names under which this module is registered in the modules around it: "blocks.3.attn". Errors report it.
  std::string_view path() const { return state_ ? std::string_view(state_->path) : std::string_view(); }
  /// Sets requires_grad of all parameters: frozen parameters get no gradient, and optimisers skip them.
  void freeze(bool on = true) const;

 protected:
  /// The value, or an undefined tensor if the handle has no cell: of an optional bias.
  static Tensor value_or_none(const Parameter& p) { return p.defined() ? p.value() : Tensor(); }
  /// A dot continues the path. Two names must differ, and none may begin with another one and a dot: a path names one
  /// thing.
  void register_module(const std::string& name, const Module& child,
                       std::source_location loc = std::source_location::current());
  template <class M>
  void register_modules(const std::string& name, const std::vector<M>& children,
                        std::source_location loc = std::source_location::current()) {
    for (size_t i = 0; i < children.size(); ++i) register_module(name + "." + std::to_string(i), children[i], loc);
  }
  /// Full precision: the layer computes with the parameter as it is stored, whatever its input's dtype.
  void register_parameter(const std::string& name, const Parameter& parameter, bool full_precision = false,
                          std::source_location loc = std::source_location::current());
  void register_buffer(const std::string& name, const Buffer& buffer,
                       std::source_location loc = std::source_location::current());

 private:
  explicit Module(Ref<internal::ModuleState> state) : state_(std::move(state)) {}
  /// Throws if the module was moved from.
  internal::ModuleState& checked_state() const;

  internal::Registered<internal::ModuleState> state_;
};

/// During its lifetime, ops carry the line of a layer's caller, and errors report that line and the layer's path. The
/// first statement of a layer's call operator. (The constructor has no path yet: it begins with a LineScope.)
class CallScope {
 public:
  CallScope(const Module& layer, SourceLine line) : line_(line), name_(layer.path(), /*path=*/true) {}

 private:
  const internal::LineScope line_;
  const internal::OriginName name_;
};

// Parameters that are initialised when they are first read. Before that, they need no memory.
/// Normal with mean 0 and this standard deviation.
Parameter normal_parameter(const Shape& shape, double std);
/// Uniform on [-bound, bound).
Parameter uniform_parameter(const Shape& shape, double bound);
Parameter constant_parameter(const Shape& shape, double value);
/// A buffer of zeros.
Buffer zeros_buffer(const Shape& shape, DType dtype = kFloat32);

}  // namespace weft::nn
