#include "models/nn/language_model.h"

#include "ops/composite/loss.h"
#include "ops/core/creation.h"

namespace weft::nn {

LossOut LanguageModel::loss(const Tensor& tokens, const Tensor& targets) const {
  const Tensor ce = cross_entropy(logits(tokens), targets);
  const Device device = ce.device();
  return {.loss = ce,
          .ce = ce,
          .aux = zeros({}, {.device = device}),
          .expert_load = zeros({0}, {.device = device}),
          .dropped = zeros({}, {.device = device}),
          .expert_counts = zeros({0, 0}, {.dtype = kInt64, .device = device})};
}

KvCache LanguageModel::make_cache(int64_t batch, int64_t capacity) const {
  KvCacheShape shape = cache_shape();
  WEFT_CHECK(capacity > 0 && capacity <= context(), "make_cache: capacity is ", capacity, "; need 1 to the context of ",
             context());
  shape.batch = batch;
  shape.capacity = capacity;
  if (compute_dtype_) shape.dtype = *compute_dtype_;
  shape.device = device();
  return KvCache(shape);
}

void LanguageModel::check_tokens(const Tensor& tokens) const {
  WEFT_CHECK(tokens.dim() == 2 && is_integral(tokens.dtype()), family(), ": tokens are ", tokens.type(),
             "; need integers [batch, time]");
  WEFT_CHECK(tokens.size(1) <= context(), family(), ": ", tokens.size(1), " tokens in a row; the context is ",
             context());
}

}  // namespace weft::nn
