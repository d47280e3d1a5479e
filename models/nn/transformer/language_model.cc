#include "models/nn/transformer/language_model.h"

#include "framework/dispatch/capture.h"
#include "models/nn/transformer/model_flops.h"
#include "ops/composite/loss/loss.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/index.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"
#include "ops/core/reductions/reduce.h"

namespace weft::nn {

Tensor LanguageModel::logits(const Tensor& tokens) const {
  check_tokens(tokens);
  return head(hidden(tokens, nullptr));
}

// The result of hidden(), in which every layer must store the keys and values of the `count` new tokens.
template <class Count, class F>
static Tensor and_stored(const KvCache& cache, const Count& count, const F& hidden) {
  const int64_t before = *cache.appended, layers = static_cast<int64_t>(cache.layers.size());
  const Tensor x = hidden();
  const int64_t stored = *cache.appended - before;
  WEFT_CHECK_AS(kFailedPrecondition, stored >= layers, "hidden: ", stored, " of ", layers,
                " layers stored the keys and values of the new tokens; need KvCache::append in each layer, or later "
                "tokens do not see them");
  cache.advance(count);
  return x;
}

Tensor LanguageModel::logits(const Tensor& tokens, const KvCache& cache) const {
  check_tokens(tokens);
  return head(and_stored(cache, tokens.size(1), [&] { return hidden(tokens, &cache); }));
}

Tensor LanguageModel::next_logits(const Tensor& tokens, const KvCache& cache) const {
  check_tokens(tokens);
  const Tensor x = and_stored(cache, tokens.size(1), [&] { return hidden(tokens, &cache); });
  return head(select(x, 1, tokens.size(1) - 1));
}

Tensor LanguageModel::next_logits(const Tensor& tokens, const Tensor& count, const KvCache& cache) const {
  check_tokens(tokens);
  const Tensor x = and_stored(cache, count, [&] { return hidden(tokens, &cache); });
  return head(squeeze(index_select(x, 1, reshape(count - 1, {1})), 1));
}

BatchShare BatchShare::of(int64_t parts, const Tensor& targets) {
  if (parts == 1) return {};
  return {sum(ne(targets, CrossEntropyOptions().ignore_index)), 1.0 / static_cast<double>(parts)};
}

Tensor LanguageModel::cross_entropy_of(const Tensor& logits, const Tensor& targets, const BatchShare& share) {
  if (!share.targets.defined()) return cross_entropy(logits, targets, {.dim = -1});
  const Tensor all = cross_entropy(logits, targets, {.reduction = "sum", .dim = -1});
  return all / share.targets.to(all.dtype());
}

LossOut LanguageModel::loss(const Tensor& tokens, const Tensor& targets, const BatchShare& share) const {
  const Tensor ce = cross_entropy_of(logits(tokens), targets, share);
  const Device device = ce.device();
  return {.loss = ce,
          .ce = ce,
          .aux = zeros({}, {.device = device}),
          .expert_load = zeros({0}, {.device = device}),
          .dropped = zeros({0}, {.device = device}),
          .expert_counts = zeros({0, 0}, {.dtype = kInt64, .device = device})};
}

KvCache LanguageModel::make_cache(int64_t batch, int64_t capacity) const {
  KvCacheShape shape = cache_shape();
  WEFT_CHECK(capacity > 0 && capacity <= context(), "make_cache: capacity is ", capacity, "; need 1 to the context of ",
             context());
  shape.batch = batch;
  shape.capacity = capacity;
  const TensorType weights = parameters().front().type();
  shape.dtype = compute_dtype_.value_or(weights.dtype);
  shape.device = weights.device;
  return KvCache(shape);
}

Tensor LanguageModel::positions(const Tensor& tokens, const KvCache* cache) const {
  const int64_t count = tokens.size(1);
  return cache ? cache->next_positions(count) : arange(count, {.dtype = kInt64, .device = tokens.device()});
}

Tensor LanguageModel::learned_positions(const Embedding& table, const Tensor& positions, const KvCache* cache) const {
  return cache ? table(positions) : slice(table.weight, 0, 0, positions.size(0));
}

double LanguageModel::flops_per_token(int64_t length) const {
  // Evaluation mode: no dropout, and room for every choice of an expert.
  struct EvalMode {
    explicit EvalMode(const Module& m) : module(m), training(m.is_training()) { module.eval(); }
    ~EvalMode() { module.train(training); }
    const Module& module;
    const bool training;
  } eval_mode(*this);
  NoGrad guard;
  const TensorType tokens{kInt64, device(), {1, length}};
  const Ref<Graph> g =
      capture_graph([this](std::span<const Tensor> in) { return std::vector{logits(in[0])}; }, {&tokens, 1});
  return training_flops(*g) / static_cast<double>(length);
}

void LanguageModel::check_tokens(const Tensor& tokens) const {
  WEFT_CHECK(tokens.dim() == 2 && is_integral(tokens.dtype()), family(), ": tokens are ", tokens.type(),
             "; need integers [batch, time]");
  WEFT_CHECK(tokens.size(1) <= context(), family(), ": ", tokens.size(1),
             " tokens in a sequence; need at most the context, ", context());
}

}  // namespace weft::nn
