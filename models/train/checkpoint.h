// Checkpoints: a folder step_N with the model and the other state as safetensors, and state.json. Writing is atomic:
// the folder gets its final name when it is complete. Its bytes do not depend on the mesh that wrote it.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/dispatch/parameter.h"
#include "framework/io/file.h"
#include "framework/io/safetensors.h"
#include "models/save/async.h"

namespace weft::train {

/// Cells by their names in the file.
using NamedCells = std::vector<std::pair<std::string, CellHandle>>;

/// The state besides tensors that a run needs to resume exactly.
struct TrainState {
  int64_t step = 0;        // optimiser steps done
  int64_t samples = 0;     // position of the data loader: the rows of all steps, of parts of live replicas too
  int64_t state_view = 0;  // the view of replicas that made the last step (distributed/control/group/view.h); 0: none
  uint64_t seed = 0;
  double loss_scale = 1;                       // f16 only
  int64_t good_steps = 0;                      // f16 only: steps since the scale last changed
  std::string family;                          // model family, such as "gpt"
  std::map<std::string, std::string> model;    // configuration of the model
  std::map<std::string, std::string> run;      // key: flag that changes the result: batch_size, lr, data, ...
  std::map<std::string, std::string> tensors;  // read only: identifies the tensors of "model" and "optimizer"

  /// Takes the step, the position of the data and the view of another state of this run.
  void set_position(const TrainState& s) { step = s.step, samples = s.samples, state_view = s.state_view; }
};

/// The weights that a run started from, if it did not initialise them: origin.json of its checkpoints.
struct Origin {
  std::string source;  // the folder or file of a model, or the folder of a checkpoint; empty: none
  std::string config;  // config_hash() of config.json or state.json there, or of the file
  friend bool operator==(const Origin&, const Origin&) = default;
};

/// The record of a run in a checkpoint, besides the state.
struct AboutRun {
  Origin origin;
  std::string flags;  // run.flags: the flags of the run, a line each; empty: no file
  std::vector<std::pair<std::string, std::string>> tokenizer;  // files of its folder tokenizer/: name, content
};

/// Writes `dir/step_N` and then removes all but the newest `keep` checkpoints (0 keeps all). Returns the folder.
/// Replaces and removes only checkpoints; throws if `dir/step_N` is not a checkpoint. `lock`: of this run on `dir`; it
/// is renewed before the folder changes, since checkpoints of a run that has taken the folder meanwhile are not ours.
/// In a job it is a collective: each process writes its shards; the first one needs `lock`, and writes `state`, `about`
/// and its values of cells that are not sharded. After an error, which all throw, the folders are as before; after one
/// of removing old checkpoints, which comes last, `dir/step_N` is complete and some of the old ones are left.
std::string save_checkpoint(const std::string& dir, const TrainState& state, const NamedCells& model,
                            const NamedCells& optimizer, int64_t keep, io::FileLock* lock = nullptr,
                            const AboutRun& about = {});

/// Begins the same, and returns while a thread of each process writes the values of the call (models/save/async.h).
/// note() of the save is the error of removing old checkpoints. `lock` must outlive the save. `memory`: the
/// checkpoint is a state in memory of each host. The first process on each host calls it before it makes files; it
/// returns two files in memory, for the tensors of the model and of the optimizer, or none.
std::unique_ptr<AsyncSave> begin_checkpoint(const std::string& dir, const TrainState& state, const NamedCells& model,
                                            const NamedCells& optimizer, int64_t keep, io::FileLock* lock = nullptr,
                                            const AboutRun& about = {}, AsyncSave::Pace pace = AsyncSave::Pace::kYield,
                                            const std::function<std::vector<std::string>()>& memory = {});

/// Throws if a file or folder step_N in `dir` that save_checkpoint() would replace is not a checkpoint, naming it and
/// its missing file.
void check_only_checkpoints(const std::string& dir);

/// The lock file of the run that writes checkpoints to `dir`.
std::string lock_path(const std::string& dir);

/// The newest checkpoint folder in `dir`, or "" if there is none.
std::string latest_checkpoint(const std::string& dir);

int64_t count_checkpoints(const std::string& dir);
/// Removes all but the newest `keep` checkpoints, and keeps `newest`.
void remove_old_checkpoints(const std::string& dir, int64_t newest, int64_t keep);

/// The step of the newest checkpoint in `dir`; -1: there is none. A run may write to it meanwhile: nothing is changed.
int64_t newest_step(const std::string& dir);

/// `path` itself if it is a checkpoint folder, else the newest checkpoint folder in it. Throws NotFound.
std::string find_checkpoint(const std::string& path);

/// The file of a checkpoint folder that read_state() reads.
std::string state_path(const std::string& folder);
/// state.json of a checkpoint folder; throws if it is damaged, naming file and field. The checksum is verified; older
/// files have none. Throws FailedPrecondition if the folder has the name step_N of another step.
TrainState read_state(const std::string& folder);

/// The fields of state.json on one line without `tensors`, and the state of such a line: for a replica that takes the
/// state of another. Throws for other texts.
std::string record_of(const TrainState& state);
TrainState state_of(const std::string& record);

/// origin.json of a checkpoint folder; one without source, if the folder has none. Throws as read_state().
Origin read_origin(const std::string& folder);
std::string origin_path(const std::string& folder);
/// The folder of the tokenizer in a checkpoint, or its GGUF file; empty: the checkpoint contains none.
std::string tokenizer_path(const std::string& folder);
/// Throws if the run of a checkpoint read its text with another tokenizer than the one with this name.
void check_tokenizer(const std::string& name, const TrainState& state, const std::string& folder);
/// run.flags of a checkpoint folder; empty, if the folder has none.
std::string read_flags(const std::string& folder);
/// The checksum of the first 16 MiB of a file, in hexadecimal digits.
std::string config_hash(const std::string& path);

/// Opens FOLDER/STEM.safetensors, STEM being "model" or "optimizer". Throws, naming the file, if the file belongs to
/// another checkpoint than `state`, or if its number of blocks differs from the number of layers in the configuration
/// of `state`. Call it before making a model: a block's modules need memory before its weights are read.
io::SafetensorsModel open_tensors(const std::string& folder, const std::string& stem, const TrainState& state);

/// Sets the cells from a file. Before it changes a cell, it throws on a missing or unexpected tensor, another shape, a
/// wrong checksum or, without `convert`, another dtype, naming tensor and file. `convert` converts values to the dtype
/// of their cell. `later` reads and verifies a value when it is needed (weights::Values::kLater); a rank of a mesh
/// reads its shards alone. Memory beside the cells: as weights::set_cells().
void load_cells(const io::SafetensorsModel& file, const NamedCells& cells, bool convert = false, bool later = false);

}  // namespace weft::train
