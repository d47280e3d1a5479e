// Modules that hold modules: Sequential calls them in order; ModuleList and ModuleDict only register them.
#pragma once
#include <algorithm>
#include <concepts>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "models/nn/activation.h"
#include "models/nn/module.h"

namespace weft::nn {

/// An argument of nn::Sequential: a module or function from one tensor to one tensor.
template <class L>
concept Layer = requires(const std::decay_t<L>& layer, const Tensor& x) {
  { layer(x) } -> std::convertible_to<Tensor>;
};

/// Layers in a chain: nn::Sequential s(nn::Linear(4, 8), nn::ReLU(), nn::Linear(8, 2)). They are registered as "0",
/// "1", ..., as in PyTorch. A function is a layer, too; parameters() does not contain parameters that it uses. An
/// error inside a layer names the layer: "in net.2 (Linear)".
class Sequential : public Module {
 public:
  using Module::Module;
  Sequential() = default;
  // A single Sequential argument selects the copy constructor; this is checked first.
  template <class First, class... Rest>
  requires(sizeof...(Rest) > 0 || !std::derived_from<std::decay_t<First>, Sequential>) && Layer<First> &&
      (Layer<Rest> && ...) explicit Sequential(First&& first, Rest&&... rest) {
    push_back(std::forward<First>(first), {});  // the lines of the arguments are unknown
    (push_back(std::forward<Rest>(rest), {}), ...);
  }

  template <Layer L>
  Sequential& push_back(L&& layer, std::source_location loc = std::source_location::current()) {
    using M = std::decay_t<L>;
    if constexpr (std::derived_from<M, Module>) {
      add(std::make_unique<LayerHolder<M>>(std::forward<L>(layer)), loc);
    } else {
      add(std::make_unique<LayerHolder<Lambda>>(Lambda(std::forward<L>(layer), loc)), loc);
    }
    return *this;
  }

  Tensor operator()(const Arg& x) const;
  size_t size() const { return layers_.size(); }
  bool empty() const { return layers_.empty(); }
  /// The layer at this index as a module. at<M>() returns it with its own type.
  Module& operator[](size_t i) { return layer(i, {}); }
  const Module& operator[](size_t i) const { return layer(i, {}); }
  /// The layer at this index, which must be an M: s.at<nn::Linear>(0).weight.
  template <class M>
  M& at(size_t i, std::source_location loc = std::source_location::current()) {
    return as<M>(i, loc);
  }
  template <class M>
  const M& at(size_t i, std::source_location loc = std::source_location::current()) const {
    return as<M>(i, loc);
  }

 private:
  struct AnyLayer {
    virtual ~AnyLayer() = default;
    virtual std::unique_ptr<AnyLayer> copy() const = 0;
    virtual Tensor call(const Tensor& x) const = 0;
    virtual Module& module() = 0;
  };
  template <class M>
  struct LayerHolder final : AnyLayer {
    explicit LayerHolder(M layer) : layer(std::move(layer)) {}
    explicit LayerHolder(std::in_place_t, const M& other) : layer(other) {}
    std::unique_ptr<AnyLayer> copy() const override { return std::make_unique<LayerHolder>(std::in_place, layer); }
    Tensor call(const Tensor& x) const override { return layer(x); }
    Module& module() override { return layer; }
    M layer;
  };
  // A copy aliases the layer; inside clone() it contains an independent layer.
  class LayerPlace {
   public:
    LayerPlace(std::unique_ptr<AnyLayer> layer, SourceLine added) : layer_(std::move(layer)), added_(added) {}
    LayerPlace(const LayerPlace& o) : layer_(o.layer_->copy()), added_(o.added_) {}
    LayerPlace(LayerPlace&&) noexcept = default;
    LayerPlace& operator=(LayerPlace o) noexcept {
      layer_ = std::move(o.layer_);
      added_ = o.added_;
      return *this;
    }
    AnyLayer& layer() const { return *layer_; }
    /// The line of push_back(), if known.
    SourceLine added() const { return added_; }

   private:
    std::unique_ptr<AnyLayer> layer_;
    SourceLine added_;
  };
  void add(std::unique_ptr<AnyLayer> layer, std::source_location loc);
  Module& layer(size_t i, std::source_location loc) const;
  template <class M>
  M& as(size_t i, std::source_location loc) const {
    M* found = dynamic_cast<M*>(&layer(i, loc));
    if (!found) wrong_type(i, loc);
    return *found;
  }
  [[noreturn]] void wrong_type(size_t i, std::source_location loc) const;

  std::vector<LayerPlace> layers_;
};

/// A vector of modules of one type, registered as "0", "1", ...
template <std::derived_from<Module> M = Module>
class ModuleList : public Module {
 public:
  ModuleList() = default;
  explicit ModuleList(const std::vector<M>& modules, std::source_location loc = std::source_location::current()) {
    for (const M& m : modules) push_back(m, loc);
  }
  ModuleList& push_back(M module, std::source_location loc = std::source_location::current()) {
    modules_.push_back(std::move(module));
    register_module(std::to_string(modules_.size() - 1), modules_.back(), loc);
    return *this;
  }
  size_t size() const { return modules_.size(); }
  bool empty() const { return modules_.empty(); }
  M& operator[](size_t i) { return check(i), modules_[i]; }
  const M& operator[](size_t i) const { return check(i), modules_[i]; }
  auto begin() { return modules_.begin(); }
  auto end() { return modules_.end(); }
  auto begin() const { return modules_.begin(); }
  auto end() const { return modules_.end(); }

 private:
  void check(size_t i) const {
    WEFT_CHECK(i < modules_.size(), "ModuleList: got index ", i, " of ", modules_.size(),
               " modules; need a smaller index");
  }
  std::vector<M> modules_;
};

/// Modules of one type by name, in order of insertion.
template <std::derived_from<Module> M = Module>
class ModuleDict : public Module {
 public:
  ModuleDict() = default;
  explicit ModuleDict(const std::vector<std::pair<std::string, M>>& modules,
                      std::source_location loc = std::source_location::current()) {
    for (const auto& [name, m] : modules) insert(name, m, loc);
  }
  /// Throws for a name in use; assign to dict["name"] to replace a module.
  ModuleDict& insert(const std::string& name, M module, std::source_location loc = std::source_location::current()) {
    register_module(name, module, loc);  // before the vector changes: it may throw
    modules_.emplace_back(name, std::move(module));
    return *this;
  }
  size_t size() const { return modules_.size(); }
  bool empty() const { return modules_.empty(); }
  bool contains(const std::string& name) const { return place(name) < modules_.size(); }
  M& operator[](const std::string& name) { return modules_[found(name)].second; }
  const M& operator[](const std::string& name) const { return modules_[found(name)].second; }
  /// Pairs of name and module.
  auto begin() const { return modules_.begin(); }
  auto end() const { return modules_.end(); }

 private:
  size_t place(const std::string& name) const {
    return static_cast<size_t>(
        std::find_if(modules_.begin(), modules_.end(), [&](const auto& m) { return m.first == name; }) -
        modules_.begin());
  }
  size_t found(const std::string& name) const {
    WEFT_CHECK(contains(name), "ModuleDict: there is no module '", name, "'; need one of its ", modules_.size(),
               " names");
    return place(name);
  }
  std::vector<std::pair<std::string, M>> modules_;
};

}  // namespace weft::nn
