// A small training step of a model under compile({.verify = true}) on a GPU, real or emulated.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "models/nn/transformer/language_model.h"

namespace weft::testing {

struct VerifiedStep {
  std::vector<double> losses;
  int64_t good_steps = 0;  // f16: good steps of the loss scaler
  std::string verify;      // the report's line about the comparison
};

/// `steps` steps, the first compared launch by launch; each loss is read while the next step is queued. Throws at a
/// wrong launch. `changes` applies to the family's default configuration. f16 runs scale the loss.
VerifiedStep verified_step(const nn::ModelFamily& family, const nn::ConfigMap& changes, std::optional<DType> dtype,
                           const std::string& numerics, int steps);

}  // namespace weft::testing
