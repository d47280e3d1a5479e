// The training loop of all models: one compiled step, evaluation, checkpoints, metrics, progress, Ctrl-C.
#pragma once
#include <string>

#include "models/nn/language_model.h"

namespace weft::train {

/// What a run does; every field is a flag of the same name.
struct TrainOptions {
  std::string config;
  std::string data;  // "", synthetic, or a path
  int64_t steps = 0;
  int64_t batch_size = 0;  // sequences per step, all gradient-accumulation parts together
  int64_t seq_len = 0;     // 0: the model's context
  double lr = 0;
  int64_t warmup = 0;
  int64_t grad_accum = 1;
  int64_t eval_every = 0;        // 0: never
  std::string checkpoint_every;  // a number of steps, 0 never, auto: about 1 % of the time
  int64_t keep = 3;
  std::string device = "cpu";
  std::string dtype = "f32";
  bool compile = true;
  int64_t memory_budget = 0;
  std::string numerics = "fast";
  bool tf32 = false;  // a GPU's f32 products of operands rounded to 11 bits
  bool verify_numerics = false;
  bool verify = false;
  std::string kernel_cache;
  std::string mesh;  // "dp2,tp2"; empty: one device
  std::string ranks = "threads";
  double timeout = 600;            // seconds a rank waits for the others in a collective
  int64_t zero = -1;               // ZeRO stage over the data dimensions; -1: 3 over fsdp, else 0
  std::string cp = "allgather";    // attention over sequences split by cp: allgather, ring or ulysses
  std::string cp_layout = "auto";  // which positions a rank has: contiguous, headtail, documents, or auto
  bool sequence = true;            // tp splits sequences where it does not split features
  bool show_plan = false;
  std::vector<std::string> forbid;  // collectives that the plan may not have
  std::string plan;                 // file of a saved plan; empty: the plan follows from the mesh
  std::string save_plan;
  std::string checkpoint_dir;
  bool resume = false;
  std::string metrics;
  uint64_t seed = 0;
  int64_t threads = 0;
  int64_t sample_tokens = 0;  // length of the sample printed at the end; 0: none
};

/// Trains; returns the exit code. Throws weft::Error on bad options, before anything is written.
int train(const nn::ModelFamily& family, const TrainOptions& options);

/// main() of //models/FAMILY:train.
int train_main(int argc, char** argv, const nn::ModelFamily& family);

}  // namespace weft::train
