// Checkpoints: a folder step_N with the model and the other state as safetensors, and state.json. Writing is atomic:
// the folder gets its final name when it is complete.
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "framework/dispatch/parameter.h"

namespace weft::train {

/// Cells by the name they are stored under.
using NamedCells = std::vector<std::pair<std::string, CellHandle>>;

/// The state besides tensors that a run needs to resume exactly.
struct TrainState {
  int64_t step = 0;           // optimiser steps done
  int64_t samples = 0;        // position of the data loader
  int64_t metrics_bytes = 0;  // length of the metrics file at this step
  uint64_t seed = 0;
  double loss_scale = 1;                     // f16 only
  int64_t good_steps = 0;                    // f16 only: steps since the scale last changed
  std::string family;                        // gpt, llama, moe
  std::map<std::string, std::string> model;  // configuration of the model
  std::map<std::string, std::string> run;    // flags that change the result: batch_size, seq_len, lr, data, ...
};

/// Writes `dir/step_N` and then removes all but the newest `keep` checkpoints (0 keeps all). Returns the folder.
std::string save_checkpoint(const std::string& dir, const TrainState& state, const NamedCells& model,
                            const NamedCells& optimizer, int64_t keep);

/// The newest checkpoint folder in `dir`, or "" if there is none.
std::string latest_checkpoint(const std::string& dir);

/// The checkpoint folder for a path that is one or contains some (the newest). Throws NotFound.
std::string find_checkpoint(const std::string& path);

/// state.json of a checkpoint folder; throws DataLoss on a damaged one.
TrainState read_state(const std::string& folder);

/// Sets the cells from FOLDER/STEM.safetensors, STEM being "model" or "optimizer". Throws, naming tensor and file, on a
/// tensor that is missing or unexpected or has another shape or, without `convert`, another dtype; then no cell has
/// changed. With `convert`, values are converted to the dtype of their cell.
void load_cells(const std::string& folder, const std::string& stem, const NamedCells& cells, bool convert = false);

}  // namespace weft::train
