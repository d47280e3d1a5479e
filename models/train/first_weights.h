// The values that a run starts from: of its checkpoint, else weights of --hf or --init_from; else its seed made them.
#pragma once
#include "models/train/checkpoint.h"
#include "models/train/options.h"

namespace weft::train {

/// Loads the weights of setup.hf or setup.init_from, if there are any, into the cells of the model. `later`: a mesh
/// reads its own shards when the step needs them.
void load_first_weights(const Setup& setup, const NamedCells& model, bool later);

/// Loads the checkpoint setup.resumed into the cells, and returns its state. Prints which of the flags of run_flags()
/// had other values. `tokenizer`: the name of the run's tokenizer, if it has one. Throws if the checkpoint is of
/// another model, or has another tokenizer.
TrainState load_resumed(const Setup& setup, const std::map<std::string, std::string>& flags,
                        const std::string& tokenizer, const NamedCells& model, const NamedCells& optimizer, bool later);

}  // namespace weft::train
