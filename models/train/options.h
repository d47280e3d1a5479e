// TrainOptions: one training run, as the flags describe it, and Setup: the same with every open value settled.
#pragma once
#include <map>
#include <string>

#include "compiler/options.h"
#include "framework/cli/cli.h"
#include "models/nn/language_model.h"

namespace weft::train {

/// What a run does. train_flags() binds each field to a flag; the values here are the flags' defaults.
struct TrainOptions {
  std::string config;      // empty: the family's default
  std::string data;        // "", synthetic, or a path
  int64_t steps = 0;       // 0: the configuration's default; so are batch_size, seq_len and lr
  int64_t batch_size = 0;  // sequences per step over all parts of gradient accumulation
  int64_t seq_len = 0;
  double lr = 0;
  int64_t warmup = -1;                    // -1: a twentieth of the steps
  int64_t grad_accum = 0;                 // microbatches; 0: 1, or with pp about twice its ranks
  int64_t asked_grad_accum = 0;           // the same before settle(): a resumed run may have another mesh
  int64_t eval_every = -1;                // 0: never; -1: a quarter of the steps
  std::string checkpoint_every = "auto";  // a number of steps, 0: never, auto: about 1 % of the time
  int64_t keep = 3;
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
  std::string metrics;
  std::string profile_steps;  // "10-12": the first and the last step that are traced; empty: none
  std::string profile_out = "trace.json";
  uint64_t seed = 0;
  int64_t threads = 0;
  // Of a mixture of experts: fields of its configuration (nn::MoEOptions); below 0: as configured.
  std::string route = "learned";
  double capacity_factor = -1, aux_loss = -1, bias_rate = -1;
  int64_t sample_tokens = -1;  // length of the sample printed at the end; 0: none; -1: 400 after training on text
  std::map<std::string, bool> given;  // by flag: whether the command line has it
};

/// The flags that set fields of configurations with experts, by the names of these fields.
inline constexpr const char* kExpertFlags[] = {"route", "capacity_factor", "aux_loss", "bias_rate"};

/// The table of flags: name, field, help, and where in `given` it is noted.
Flags train_flags(TrainOptions& options);

/// What the options leave to be derived.
struct Setup {
  nn::ConfigMap config;
  std::string config_name;
  DType dtype = kFloat32;
  Device device;
  int64_t checkpoint_every = 0;  // -1: auto
  std::string dir;               // of checkpoints
  std::string resumed;           // the checkpoint to go on from; empty: none
  bool on_text = true;
  uint64_t saved_hash = 0;                      // of the plan in options.plan; 0: none
  int64_t profile_first = 0, profile_last = 0;  // from 1; 0: none
};

/// Checks the options and fills in their open values. With `resume`, flags that change the result and are neither given
/// nor changed take the value that the resumed run had. Throws UsageError on bad ones; writes nothing.
Setup settle(const nn::ModelFamily& family, TrainOptions& options);

}  // namespace weft::train
