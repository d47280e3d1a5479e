// Definitions of OptimizerWith for the source files that instantiate it.
#pragma once
#include <utility>

#include "models/optim/optimizer.h"

namespace weft::optim {

template <class Options>
double decay_of(const Options& o) {
  if constexpr (requires { o.weight_decay; })
    return o.weight_decay;
  else
    return 0;
}

// The scope of the user's line lasts until the base is constructed.
template <class Options>
OptimizerWith<Options>::OptimizerWith(std::vector<ParamGroup> groups, const Options& o, std::source_location loc)
    : Optimizer(std::move(groups), o.lr, decay_of(o), (internal::LineScope(loc), checked_state(o)), loc), options_(o) {}

template <class Options>
Tensor OptimizerWith<Options>::updated(Update& u) const {
  if constexpr (requires { options_.maximize; })
    if (options_.maximize) u.grad = -u.grad;
  return next(u, options_);
}

}  // namespace weft::optim
