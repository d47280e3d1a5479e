// Options of the short runs with which tests compare files and messages.
#pragma once
#include <cstdint>
#include <string>

#include "models/train/options.h"

namespace weft::testing {

/// A run on synthetic data with its ranks as threads, without checkpoints, evaluations and a sample.
inline train::TrainOptions short_run(const std::string& mesh, int64_t steps, int64_t batch_size) {
  train::TrainOptions o;
  o.data = "synthetic";
  o.steps = steps;
  o.batch_size = batch_size;
  o.seq_len = 8;
  o.mesh = mesh;
  o.ranks = "threads";
  o.checkpoint_every = "0";
  o.sample_tokens = 0;
  o.eval_every = 0;
  return o;
}

}  // namespace weft::testing
