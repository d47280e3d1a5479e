// The weights that a new run starts from: of --hf or --init_from; else its seed made them.
#pragma once
#include "models/train/checkpoint.h"
#include "models/train/options.h"

namespace weft::train {

/// Loads the weights of setup.hf or setup.init_from, if there are any, into the cells of the model. `later`: a mesh
/// reads its own shards when the step needs them.
void load_first_weights(const Setup& setup, const NamedCells& model, bool later);

}  // namespace weft::train
