// TrainOptions: the flags of one training run. Setup: the values that settle() derives from them.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "compiler/options.h"
#include "distributed/control/group/replica_identity.h"
#include "distributed/diloco/outer.h"
#include "distributed/replica/replay.h"
#include "framework/cli/cli.h"
#include "models/nn/transformer/language_model.h"
#include "models/train/checkpoint.h"

namespace weft::weights {
struct HfModel;
}

namespace weft::train {

/// The options of a run. train_flags() binds each field to a flag; the values here are the flags' defaults.
struct TrainOptions {
  std::string config;      // empty: the family's default
  std::string hf;          // a model of transformers whose weights and configuration the run starts from
  std::string init_from;   // the same: a checkpoint
  int64_t context = 0;     // fewer tokens than the context of the model, with hf; 0: its context
  Settings set;            // fields of the configuration that get other values
  std::string data;        // "", synthetic, or a path
  std::string tokenizer;   // tokenizer of the data: a tokenizer.json or a GGUF file; empty: beside hf, else bytes
  std::string pre;         // the pattern of the tokenizer of a GGUF file; empty: the file names it
  int64_t steps = 0;       // 0: the configuration's default; so are batch_size, seq_len and lr
  int64_t batch_size = 0;  // sequences per step over all microbatches
  int64_t seq_len = 0;
  double lr = 0;
  int64_t warmup = -1;                    // -1: a twentieth of the steps
  int64_t microbatches = 0;               // 0: 1, or with pp about twice its ranks
  int64_t asked_microbatches = 0;         // microbatches before settle(): a resumed run may have another mesh
  int64_t eval_every = -1;                // 0: never; -1: a quarter of the steps
  std::string checkpoint_every = "auto";  // a number of steps, 0: never, auto: by mtbf
  double mtbf = 3;                        // hours between failures of the run, for auto
  std::string checkpoint_errors = "warn";
  bool checkpoint_async = false;
  int64_t keep = 3;
  int64_t check_state = 0;    // 0: never
  int64_t check_compute = 0;  // 0: never
  std::string check_state_errors = "stop";
  int64_t restarts = 0;            // after signals that end processes; a new checkpoint resets the count
  std::string memory_every = "0";  // as checkpoint_every, for states in memory
  std::string memory_dir;          // folder in memory for them; empty: memory that the launcher holds
  std::string device = "cpu";
  std::string dtype = "f32";
  CompileOptions step;  // how the step is compiled; settle() fills in the mesh
  std::string mesh;     // "dp2,tp2"; empty: one device
  std::string ranks = "processes";
  std::string transport = "auto";  // between processes: auto, shared or gloo
  std::string async_tp = "auto";
  bool show_plan = false;
  std::string plan;  // file of a saved plan; empty: the plan follows from the mesh
  std::string save_plan;
  std::string checkpoint_dir;
  bool resume = false;
  int64_t diloco = 0;  // steps between exchanges of outer gradients; 0: replicas exchange gradients in each step
  double outer_lr = 0.7, outer_momentum = 0.9, outer_alpha = 0;
  int64_t outer_fragments = 1, outer_delay = 0;
  std::string outer_wire = "f32";
  int64_t outer_rows = 0;
  std::string replay;  // journal of the service of replicas; empty: none
  std::string metrics;
  std::string log_dir;
  std::string profile_steps;  // "10-12": the first and the last step that are traced; empty: none
  std::string profile_out = "trace.json";
  uint64_t seed = 0;
  int64_t sample_tokens = -1;  // length of the sample printed at the end; 0: none; -1: 400 after training on text
  std::map<std::string, bool> given;  // flag -> whether the command line contains it
};

/// The table of flags: name, field, help, and entry in `given`.
Flags train_flags(TrainOptions& options);

/// The flags of a run for --flagfile, a line each: the flags of the run that it resumes (`before`), and all flags with
/// other values than their defaults. --checkpoint_dir, --resume, --replay, --restarts, --memory_every, --memory_dir and
/// files that the run writes are left out: each run chooses them.
std::string flag_lines(TrainOptions options, const std::string& before);

/// The flag that names the model: "hf", "init_from" or "config".
const char* source_flag(const TrainOptions& options);

/// Whether two texts are equal values of a flag: "1e-3" and "0.001".
bool is_same_flag(const std::string& name, const std::string& a, const std::string& b);

/// The values that settle() derives from the options.
struct Setup {
  nn::ConfigMap config;
  std::string config_name;                     // name of the preset, or of the weights that the run starts from
  Origin origin;                               // origin of the weights; a resumed run's own
  std::string other_origin;                    // a sentence, if --hf or --init_from is not the resumed run's origin
  std::shared_ptr<const weights::HfModel> hf;  // to start from; null: none
  std::string init_from;                       // the checkpoint to start from; empty: none
  std::string tokenizer, pre;                  // for text::open_or_bytes()
  DType dtype = kFloat32;
  Device device;
  int64_t checkpoint_every = 0;                     // -1: auto
  int64_t memory_every = 0;                         // -1: auto
  std::string dir;                                  // folder of checkpoints
  std::string memory;                               // folder of states in memory; empty: none
  std::string resumed;                              // the checkpoint to resume from; empty: none
  std::shared_ptr<const dist::Replay> replay;       // null: none
  std::optional<control::ReplicaIdentity> replica;  // this run is a replica of a group; null: it is not
  int64_t rows = 0;                                 // rows of the batch; with `replay` or `replica`, of one replica
  std::optional<dist::OuterOptions> outer;          // --diloco; null: none
  bool on_text = true;
  uint64_t saved_hash = 0;                      // hash of the plan in options.plan; 0: none
  int64_t profile_first = 0, profile_last = 0;  // from 1; 0: none
};

/// Whether this process starts the replicas of a run on this host: --mesh has a dimension replica, and there are
/// --restarts. Only with the mesh of settle().
bool starts_replicas(const TrainOptions& options);

/// Checks the options and fills in their open values. If `resume` is set, a flag that changes the result keeps the
/// resumed run's value, unless the flag is given or changed. Throws UsageError on bad options; writes nothing.
Setup settle(const nn::ModelFamily& family, TrainOptions& options);

}  // namespace weft::train
