// The products and the attention of a model's layers, read from its captured forward graph.
#pragma once
#include <functional>

#include "models/nn/module.h"
#include "tools/plan/model/shape.h"

namespace weft::planner {

/// "blocks.3." of a parameter's path that begins with it; "" for other paths.
std::string layer_of(const std::string& path);

/// The shape of `model`, whose call on tokens i64 [batch, time] is `logits`; its table of tokens is "tok.weight", and
/// its head "head.weight" unless it is tied. Layer i counts as layers[i] layers. That is 0 for layers like an
/// earlier one, and for the last: the work after a layer is known if another layer follows. Captures on meta: nothing
/// is computed. Leaves the model on meta and in eval mode. Name and family stay empty.
ModelShape captured_shape(const nn::Module& model, const std::function<Tensor(const Tensor&)>& logits, int64_t context,
                          const std::vector<int64_t>& layers);

}  // namespace weft::planner
