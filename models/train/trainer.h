// The training loop of all models: one compiled step, evaluation, checkpoints, metrics, progress and Ctrl-C.
#pragma once
#include "models/train/options.h"

namespace weft::train {

/// Trains a model and returns the exit code. Throws weft::Error on bad options before it writes anything.
int train(const nn::ModelFamily& family, const TrainOptions& options);

/// main() of //models/FAMILY:train.
int train_main(int argc, char** argv, const nn::ModelFamily& family);

}  // namespace weft::train
