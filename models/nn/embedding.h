// Embedding: a table of vectors looked up by integers.
#pragma once
#include "framework/dispatch/arg.h"
#include "models/nn/module.h"

namespace weft::nn {

struct EmbeddingOptions {
  double std = 1;  // of the normal initialisation
};

class Embedding : public Module {
 public:
  Parameter weight;  // [count, dim]
  Embedding(int64_t count, int64_t dim, const EmbeddingOptions& options = {},
            std::source_location loc = std::source_location::current());
  /// indices[...] -> [..., dim] in the weight's dtype; throws OutOfRange for an index outside [0, count).
  Tensor operator()(const Arg& indices) const;
};

}  // namespace weft::nn
