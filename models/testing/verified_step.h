// A small training step of a model under compile({.verify = true}) on a GPU, real or emulated.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "models/nn/language_model.h"

namespace weft::testing {

struct VerifiedStep {
  std::vector<double> losses;
  int64_t good_steps = 0;  // f16: of the loss scale
  std::string verify;      // the line of the report: what was compared, how
};

/// `steps` steps, the first of them compared launch by launch, each loss read while the next step is queued. Throws
/// where a launch is wrong. `changes`: of the family's default configuration. f16 scales its loss.
VerifiedStep verified_step(const nn::ModelFamily& family, const nn::ConfigMap& changes, std::optional<DType> dtype,
                           const std::string& numerics, int steps);

}  // namespace weft::testing
