// Models of other programs: a folder of transformers with config.json and safetensors, or a GGUF file of llama.cpp.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "framework/dispatch/parameter.h"
#include "models/weights/config.h"
#include "models/weights/source.h"

namespace weft::weights {

/// A model with its weights open and not yet read.
struct HfModel {
  std::string folder;  // or the GGUF file
  std::string file;    // with the configuration
  HfConfig config;
  std::unique_ptr<WeightSource> source;
};

/// The folder or file that a path names: a folder, a file *.gguf, or org/name in the local cache of Hugging Face (HF_HUB_CACHE, HF_HOME,
/// ~/.cache/huggingface). Throws NotFound, naming the places.
std::string find_hf(const std::string& path);

/// Reads the config.json of a folder, or the metadata of a GGUF file, and opens its weights. `context`: as for read_config().
HfModel open_hf(const std::string& path, int64_t context = 0);

/// Sets all cells of a model with this configuration, with conversion to the dtype and device of each cell. Throws as
/// plan_cells() does, before a cell changes. Memory beside the cells: one cell, and a copy of a part of a tensor if the
/// file does not align it.
void load_weights(const HfModel& model, const std::vector<std::pair<std::string, CellHandle>>& cells,
                  std::vector<std::string>* warnings = nullptr);

}  // namespace weft::weights
