// Models of other programs: a folder of transformers with config.json and safetensors, or a GGUF file of llama.cpp.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "framework/dispatch/parameter.h"
#include "framework/io/gguf.h"
#include "models/weights/config.h"
#include "models/weights/pieces.h"
#include "models/weights/source.h"

namespace weft::weights {

/// A model with its weights open and not yet read.
struct HfModel {
  std::string folder;  // or the GGUF file
  HfConfig config;
  std::shared_ptr<const WeightSource> source;
  /// The file of the configuration, for errors.
  std::string config_path() const { return io::is_gguf(folder) ? folder : folder + "/config.json"; }
};

/// The folder or file that a path names: a folder, a file *.gguf, or org/name in the local cache of Hugging Face
/// (HF_HUB_CACHE, HF_HOME, ~/.cache/huggingface). Throws NotFound, naming the places.
std::string find_hf(const std::string& path);

/// Reads the config.json of a folder, or the metadata of a GGUF file, and opens its weights. `context`: as for
/// read_config(). `program`: if set, throws InvalidArgument for a model of another program.
HfModel open_hf(const std::string& path, int64_t context = 0, std::string_view program = "");

using NamedCells = std::vector<std::pair<std::string, CellHandle>>;

/// How cells get their values.
enum class Values : uint8_t {
  kCopied,
  kInPlace,  // in the file's memory where it has the cell's dtype and order: a step that writes the cell copies it. If
             // another program cuts the file short meanwhile, a read ends this process by SIGBUS.
  kLater,    // when they are read; a mesh reads each shard alone. A read verifies the blocks of the file that it
             // touches; DataLoss leaves the cell as it was, so that another read throws again and set() mends it.
};

/// Sets the cells of plans, cell i by plan i, with conversion to the dtype and device of the cell. Verifies the
/// checksums of all tensors, except with kLater, and throws DataLoss before a cell changes. Memory beside the cells:
/// 8 MiB a thread, and one cell if cells are on another device or have values. After one second, lines on standard
/// error report the loaded bytes (progress.h).
void set_cells(const std::shared_ptr<const WeightSource>& source, const std::vector<CellPlan>& plans,
               const NamedCells& cells, Values values);

/// Sets all cells of a model with this configuration by set_cells(). Throws as plan_cells(), before a cell changes.
void load_weights(const HfModel& model, const NamedCells& cells, std::vector<std::string>* warnings = nullptr,
                  Values values = Values::kInPlace);

}  // namespace weft::weights
