// Checkpoints: a folder step_N with the model and the other state as safetensors, and state.json. Writing is atomic:
// the folder gets its final name when it is complete.
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "framework/dispatch/parameter.h"
#include "framework/io/safetensors.h"

namespace weft::train {

/// Cells by the name they are stored under.
using NamedCells = std::vector<std::pair<std::string, CellHandle>>;

/// The state besides tensors that a run needs to resume exactly.
struct TrainState {
  int64_t step = 0;           // optimiser steps done
  int64_t samples = 0;        // position of the data loader
  int64_t metrics_bytes = 0;  // length of the metrics file at this step
  uint64_t seed = 0;
  double loss_scale = 1;                       // f16 only
  int64_t good_steps = 0;                      // f16 only: steps since the scale last changed
  std::string family;                          // gpt, llama, moe
  std::map<std::string, std::string> model;    // configuration of the model
  std::map<std::string, std::string> run;      // flags that change the result: batch_size, seq_len, lr, data, ...
  std::map<std::string, std::string> tensors;  // read only: what identifies the tensors of "model" and "optimizer"
};

/// Writes `dir/step_N` and then removes all but the newest `keep` checkpoints (0 keeps all). Returns the folder.
/// Replaces and removes checkpoints only: throws if `dir/step_N` is something else.
std::string save_checkpoint(const std::string& dir, const TrainState& state, const NamedCells& model,
                            const NamedCells& optimizer, int64_t keep);

/// Throws if `dir` has a file or folder step_N that save_checkpoint() would have to replace and that is not a
/// checkpoint, naming it and the file that it lacks.
void check_only_checkpoints(const std::string& dir);

/// The file that the run which writes checkpoints to `dir` holds a lock on.
std::string lock_path(const std::string& dir);

/// The newest checkpoint folder in `dir`, or "" if there is none.
std::string latest_checkpoint(const std::string& dir);

/// The checkpoint folder for a path that is one or contains some (the newest). Throws NotFound.
std::string find_checkpoint(const std::string& path);

/// The file of a checkpoint folder that read_state() reads.
std::string state_path(const std::string& folder);
/// state.json of a checkpoint folder; throws on a damaged one, naming file and field. A file with a checksum is
/// compared with it; older ones have none.
TrainState read_state(const std::string& folder);

/// Opens FOLDER/STEM.safetensors, STEM being "model" or "optimizer". Throws, naming the file, if it comes from another
/// checkpoint than `state`, or has not as many blocks as the configuration of `state` has layers. Models are made only
/// then: the memory for a block's modules is needed before its weights are read.
io::SafetensorsModel open_tensors(const std::string& folder, const std::string& stem, const TrainState& state);

/// Sets the cells from a file. Throws, naming tensor and file, on a tensor that is missing or unexpected or has another
/// shape or, without `convert`, another dtype, before it allocates anything; then no cell has changed. With `convert`,
/// values are converted to the dtype of their cell. With `later`, values are checked now, and each is read again when
/// it is needed: a rank of a mesh never has all of them.
void load_cells(const io::SafetensorsModel& file, const NamedCells& cells, bool convert = false, bool later = false);

}  // namespace weft::train
