#include "models/nn/embedding.h"

#include "ops/core/index.h"

namespace weft::nn {

Embedding::Embedding(int64_t count, int64_t dim, const EmbeddingOptions& options, std::source_location loc) {
  internal::LineScope line(loc);
  WEFT_CHECK(count > 0 && dim > 0, "Embedding: need positive sizes; got ", count, " x ", dim);
  weight = normal_parameter({count, dim}, options.std);
  register_parameter("weight", weight);
}

Tensor Embedding::operator()(const Arg& indices) const {
  CallScope call(*this, indices.line());
  return embedding(indices, weight);
}

}  // namespace weft::nn
