// Optimizer: computes new parameter values from gradients. Learning rate, step count and moments are cells, so compiled
// steps update them and checkpoints contain them. Arithmetic is f32 (f64 for f64 parameters).
#pragma once
#include <concepts>
#include <functional>
#include <map>
#include <optional>
#include <source_location>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "framework/autodiff/grad.h"
#include "models/optim/schedule.h"

namespace weft::internal {
/// A stand-in for a group: a loop over opt.param_groups() has one error, not several.
struct NoGroup {
  const NoGroup& options() const { return *this; }
  void set_lr(double) const {}
  double get_lr() const { return 0; }
};
}  // namespace weft::internal

namespace weft::optim {

/// Parameters that share settings. The optimiser's settings apply where the group has none.
struct ParamGroup {
  std::vector<Parameter> params;
  std::optional<double> weight_decay = {};
  double lr_scale = 1;
};

/// Two groups: tensors of two or more dims with `weight_decay`; vectors and scalars (norms, biases) without.
std::vector<ParamGroup> decay_groups(const std::vector<Parameter>& params, double weight_decay);

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = default;
  Optimizer& operator=(const Optimizer&) = default;

  /// One update with the gradients of `loss`: step(grad(loss, parameters(true))). Throws if the loss depends on no
  /// parameter.
  void minimize(const Tensor& loss, std::source_location loc = std::source_location::current());
  /// One update. Gradients of grad(loss, parameters) may have any order, because Gradients::parameters names the
  /// parameter of each; plain tensors have the order of parameters() or of parameters(true). Parameters without a
  /// gradient (undefined) and frozen parameters do not change. Throws if the number or a shape is wrong.
  void step(const Gradients& grads, std::source_location loc = std::source_location::current());
  /// Does not exist: gradients are values.
  template <class T = Gradients>
  void step() const {
    static_assert(!std::is_same_v<T, Gradients>,
                  "step: gradients are values, not state: write opt.minimize(loss) for loss.backward(); opt.step(), or "
                  "opt.step(grad(loss, model.parameters()))");
  }
  /// The parameters in the order of construction, one group after another; with `trainable`, without frozen parameters.
  std::vector<Parameter> parameters(bool trainable = false) const;

  Buffer lr;     // f64 scalar: the learning rate of the next step, rounded once to the dtype of the arithmetic
  Buffer steps;  // i64 scalar: steps taken
  /// Call it between compiled steps; inside one, set `lr` to a tensor that the step computes.
  void set_lr(double value, std::source_location loc = std::source_location::current()) const;
  /// Does not exist: gradients are values.
  template <class... T>
  void zero_grad(const T&...) const {
    static_assert(sizeof...(T) > 99,
                  "zero_grad: remove this call: gradients are values that grad() returns and "
                  "minimize() uses; nothing accumulates between steps");
  }

  /// Do not exist: the rate is a cell, and a schedule is a function of the step.
  template <class T = Optimizer>
  std::vector<internal::NoGroup> param_groups() const {
    static_assert(!std::is_same_v<T, Optimizer>,
                  "param_groups: write opt.set_lr(0.1) and opt.lr.value(); groups are given to the constructor, "
                  "optim::SGD({{.params = ps, .lr_scale = 0.1}}, {.lr = 0.1})");
    return {};
  }
  template <class D>
  requires std::same_as<D, double> || std::same_as<D, BaseRate>
  operator D() const {
    static_assert(sizeof(D) == 0,
                  "a schedule is a function of the step: write optim::Scheduler s(opt, optim::StepLR{.base = 0.1, "
                  ".step_size = 30}) for optim::StepLR s(opt, 30), and so on");
    return 0.0;
  }

  /// lr, steps, then the state of each parameter ("blocks.0.attn.qkv.weight.exp_avg"), for checkpoints.
  std::vector<std::pair<std::string, CellHandle>> named_cells() const;
  /// The values of named_cells(); `torn` as in nn::Module::state_dict.
  std::map<std::string, Tensor> state_dict(std::vector<std::string>* torn = nullptr,
                                           std::source_location loc = std::source_location::current()) const;
  /// Throws before it changes anything, and names every entry that is missing, unexpected or does not fit.
  void load_state_dict(const std::map<std::string, Tensor>& values,
                       std::source_location loc = std::source_location::current()) const;
  /// named_cells(). Throws the errors of load_state_dict(values), whose tensors may be on the meta device.
  std::vector<std::pair<std::string, CellHandle>> cells_for(const std::map<std::string, Tensor>& values) const;

 protected:
  struct Slot {
    Parameter param;
    double weight_decay = 0;
    double lr_scale = 1;
    std::vector<Buffer> state;
  };
  /// The inputs of one parameter's update, in the dtype of its arithmetic.
  struct Update {
    Tensor value, grad;
    std::vector<Tensor> state;  // replaced by the new state
    Tensor lr;                  // includes the group's lr_scale
    Tensor step;                // f64 scalar: number of this step, from 1
    double weight_decay = 0;
  };
  /// State of one parameter, in the dtype of its arithmetic.
  struct StateTensor {
    std::string name;
    Shape shape;
    double start = 0;  // the value of all elements before the first step
  };
  using StateOf = std::function<std::vector<StateTensor>(const Parameter&)>;
  Optimizer(std::vector<ParamGroup> groups, double lr, double weight_decay, const StateOf& state_of,
            std::source_location loc);
  /// Each state tensor has the parameter's shape and starts at 0.
  static StateOf like_parameter(std::vector<std::string> names);
  /// Returns the parameter's new value and replaces u.state.
  virtual Tensor updated(Update& u) const = 0;

 private:
  /// The slot of each gradient.
  std::vector<Slot*> slots_of(const Gradients& grads);

  std::vector<Slot> slots_;
};

/// An optimizer with options of its own. Its source file defines checked_state() and next(), and instantiates the class
/// (optimizer_with.h). `maximize` negates the gradient in the formula.
template <class Options>
class OptimizerWith : public Optimizer {
 public:
  OptimizerWith(const std::vector<Parameter>& params, const Options& options = {},
                std::source_location loc = std::source_location::current())
      : OptimizerWith(std::vector{ParamGroup{params}}, options, loc) {}
  OptimizerWith(std::vector<ParamGroup> groups, const Options& options = {},
                std::source_location loc = std::source_location::current());
  /// PyTorch's second argument: Adam(params, 1e-3). A template, so that {} is no number.
  template <class T>
  requires std::is_arithmetic_v<T> OptimizerWith(const std::vector<Parameter>& params, T lr,
                                                 std::source_location loc = std::source_location::current())
      : OptimizerWith(params, with_lr(lr), loc) {}

 private:
  static Options with_lr(double lr) {
    Options o;
    o.lr = lr;
    return o;
  }
  /// Checks the options; returns the state of each parameter.
  static StateOf checked_state(const Options& o);
  static Tensor next(Update& u, const Options& o);
  Tensor updated(Update& u) const override;

  Options options_;
};

}  // namespace weft::optim
