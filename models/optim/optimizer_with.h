// Definitions of OptimizerWith for the source files that instantiate it.
#pragma once
#include <utility>

#include "models/optim/optimizer.h"

namespace weft::optim {

// The scope of the user's line lasts until the base is constructed.
template <class Options>
OptimizerWith<Options>::OptimizerWith(std::vector<ParamGroup> groups, const Options& o, std::source_location loc)
    : Optimizer(std::move(groups), o.lr, o.weight_decay, (internal::LineScope(loc), checked_state(o)), loc),
      options_(o) {}

template <class Options>
Tensor OptimizerWith<Options>::updated(Update& u) const {
  return next(u, options_);
}

}  // namespace weft::optim
