// Models of Hugging Face's transformers: a folder with config.json and safetensors.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "framework/dispatch/parameter.h"
#include "models/weights/config.h"
#include "models/weights/source.h"

namespace weft::weights {

/// A folder that transformers wrote, with its weights open and not yet read.
struct HfModel {
  std::string folder;
  HfConfig config;
  std::unique_ptr<WeightSource> source;
};

/// The folder that a path names: a folder, or org/name in the local cache of Hugging Face (HF_HUB_CACHE, HF_HOME,
/// ~/.cache/huggingface). Throws NotFound, naming the places.
std::string find_hf(const std::string& path);

/// Reads the config.json of a folder and opens its weights. `context`: as for read_config().
HfModel open_hf(const std::string& path, int64_t context = 0);

/// Sets all cells of a model with this configuration, with conversion to the dtype and device of each cell. Throws as
/// plan_cells() does, before a cell changes. Memory beside the cells: one cell, and a copy of a part of a tensor if the
/// file does not align it.
void load_weights(const HfModel& model, const std::vector<std::pair<std::string, CellHandle>>& cells,
                  std::vector<std::string>* warnings = nullptr);

}  // namespace weft::weights
