// Evaluation: the loss on held-out text, on the mesh of one replica.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>

#include "distributed/launch/compile.h"
#include "models/data/loader.h"
#include "models/nn/transformer/language_model.h"
#include "models/train/options.h"

namespace weft::train {

class Evaluation {
 public:
  /// `options` are of the training step, but for the mesh. `text` is held out. The arguments must outlive this.
  Evaluation(nn::LanguageModel& model, const data::TokenDataset& text, const TrainOptions& options,
             const dist::Mesh& mesh, Device device);
  Evaluation(const Evaluation&) = delete;  // the step contains a pointer to this
  /// The mean loss of the first batches. A collective of the mesh. Compiles in the first call.
  double loss();

 private:
  using Fn = std::function<Tensor(Tensor, Tensor)>;
  nn::LanguageModel& model_;
  const Device device_;
  data::SequentialLoader loader_;
  Compiled<Fn> step_;
};

}  // namespace weft::train
