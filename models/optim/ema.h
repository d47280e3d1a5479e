// EMA: a running mean of parameters for evaluation (Polyak and Juditsky 1992).
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "framework/dispatch/parameter.h"

namespace weft::optim {

/// mean <- decay mean + (1 - decay) p after each step; the first update copies the parameters, as in PyTorch's
/// AveragedModel. The means are cells, so a compiled step can contain update(). Arithmetic is f32 (f64 for f64
/// parameters).
class EMA {
 public:
  explicit EMA(const std::vector<Parameter>& params, double decay = 0.999,
               std::source_location loc = std::source_location::current());
  /// The means of all parameters of a module.
  template <class M>
  requires requires(const M& m) { m.named_parameters(); }
  explicit EMA(const M& module, double decay = 0.999, std::source_location loc = std::source_location::current())
      : EMA(module.parameters(loc), decay, loc) {}

  /// Call it after the optimiser's step().
  void update(std::source_location loc = std::source_location::current()) const;
  /// Writes the means into the parameters.
  void copy_to_parameters(std::source_location loc = std::source_location::current()) const;
  /// Exchanges means and parameters; a second call exchanges them back: swap(); evaluate; swap(). An exchange rounds
  /// the means to the parameters' dtype. Do not train in between.
  void swap(std::source_location loc = std::source_location::current()) const;
  /// The means in the order of the parameters.
  std::vector<Tensor> values() const;

  Buffer updates;  // i64 scalar: updates so far

  /// updates, then the mean of each parameter: "blocks.0.weight.ema".
  std::vector<std::pair<std::string, CellHandle>> named_cells() const;
  std::map<std::string, Tensor> state_dict(std::vector<std::string>* torn = nullptr,
                                           std::source_location loc = std::source_location::current()) const;
  void load_state_dict(const std::map<std::string, Tensor>& values,
                       std::source_location loc = std::source_location::current()) const;

 private:
  void check_updated(const char* what) const;

  double decay_;
  std::vector<Parameter> params_;
  std::vector<Buffer> means_;
};

}  // namespace weft::optim
