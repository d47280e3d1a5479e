// Optimizer: turns gradients into new parameter values. Learning rate, step count and moments are cells, so that a
// compiled step reads and advances them and a checkpoint holds them. Arithmetic is f32 (f64 for f64 parameters).
#pragma once
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/dispatch/parameter.h"

namespace weft::optim {

/// Parameters that share settings; what is not given is the optimiser's own.
struct ParamGroup {
  std::vector<Parameter> params;
  std::optional<double> weight_decay = {};
  double lr_scale = 1;
};

/// Two groups: matrices and higher ranks with `weight_decay`, vectors and scalars (norms, biases) without.
std::vector<ParamGroup> decay_groups(const std::vector<Parameter>& params, double weight_decay);

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = default;
  Optimizer& operator=(const Optimizer&) = default;

  /// One update. `grads` follow parameters(), or parameters(true), of which an undefined entry is skipped. Frozen
  /// parameters are left alone. Throws for a count or shape that does not fit.
  void step(const std::vector<Tensor>& grads);
  /// In the order they were given, groups one after another; with `trainable`, those that are not frozen.
  std::vector<Parameter> parameters(bool trainable = false) const;

  Buffer lr;     // f32 0-d: the learning rate of the next step
  Buffer steps;  // i64 0-d: steps taken
  void set_lr(double value) const;

  /// lr, steps, then the state of each parameter ("blocks.0.attn.qkv.weight.exp_avg"): what a checkpoint holds.
  std::vector<std::pair<std::string, CellHandle>> named_cells() const;
  std::map<std::string, Tensor> state_dict() const;
  /// Throws, naming what is missing, unexpected or ill-shaped, before changing anything.
  void load_state_dict(const std::map<std::string, Tensor>& values) const;

 protected:
  struct Slot {
    Parameter param;
    double weight_decay = 0;
    double lr_scale = 1;
    std::vector<Buffer> state;  // of the parameter's shape, in order of state_names
  };
  /// What an update of one parameter reads: all in the dtype of its arithmetic.
  struct Update {
    Tensor value, grad;
    std::vector<Tensor> state;  // replaced by the new state
    Tensor lr;                  // times the group's scale
    Tensor step;                // f64 0-d: number of this step, from 1
    double weight_decay = 0;
  };
  Optimizer(std::vector<ParamGroup> groups, double lr, double weight_decay,
            const std::vector<std::string>& state_names);
  /// The parameter's new value; replaces u.state.
  virtual Tensor updated(Update& u) const = 0;

 private:
  std::vector<Slot> slots_;
};

}  // namespace weft::optim
