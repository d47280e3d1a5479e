// The data of the ahead-of-time examples: the same in every program, computed without ops.
#pragma once
#include <cstdint>
#include <vector>

#include "framework/tensor/tensor.h"

namespace weft::aot_example {

/// The arguments of step `i` of an example: features and classes, or tokens and the following tokens.
inline std::vector<Tensor> batch(bool mlp, int i) {
  uint64_t state = 12345 + i;
  auto next = [&] { return static_cast<int64_t>((state = state * 6364136223846793005u + 1442695040888963407u) >> 33); };
  std::vector<int64_t> tokens, targets;
  std::vector<float> features;
  if (mlp) {
    for (int r = 0; r < 32 * 16; ++r) features.push_back(static_cast<float>(next() % 2001 - 1000) / 500);
    for (int r = 0; r < 32; ++r) targets.push_back(next() % 10);
    return {Tensor::from_vector(features, {32, 16}), Tensor::from_vector(targets, {32})};
  }
  for (int b = 0; b < 4; ++b) {
    int64_t token = next() % 64;
    for (int t = 0; t < 16; ++t) {
      tokens.push_back(token);
      targets.push_back(token = (5 * token + next() % 3) % 64);
    }
  }
  return {Tensor::from_vector(tokens, {4, 16}), Tensor::from_vector(targets, {4, 16})};
}

}  // namespace weft::aot_example
