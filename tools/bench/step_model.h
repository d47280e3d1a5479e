// The subject of train_step: a model with its loss and its random batches. pytorch/train_step.py has the same models.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "weft.h"

namespace weft::bench {

struct StepModel {
  std::shared_ptr<nn::Module> module;
  std::function<Tensor(const Tensor& x, const Tensor& y, DType activations)> loss;
  std::function<std::pair<Tensor, Tensor>()> batch;
  int64_t items = 0;  // tokens or images of a batch

  /// Model FLOPs of one training step (models/nn/transformer/model_flops.h).
  double step_flops() const;
};

/// gpt_tiny, gpt_base or moe_small (model.h); resnet: ResNet-18 for 32 x 32 images, batch 64 (He et al. 2016,
/// arXiv:1512.03385); lstm: an embedding, an LSTM and a linear layer of 512, 64 positions, batch 32. Throws, listing
/// the names, for any other name.
StepModel make_step_model(const std::string& name);

}  // namespace weft::bench
