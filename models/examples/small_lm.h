// SmallLm: the transformer of the attention examples. It contains nothing about documents, distances or prefixes. The
// masks and scores are in the BlockOptions (for every pass) or in the AttentionContext (for one pass).
#pragma once
#include <vector>

#include "weft.h"

namespace weft::examples {

struct SmallLm : nn::Module {
  nn::Embedding tok;
  std::vector<nn::TransformerBlock> blocks;
  nn::Norm norm;

  SmallLm(int64_t vocab, int64_t dim, int64_t layers, const nn::BlockOptions& options)
      : tok(vocab, dim, {.std = 0.02}), norm(nn::RMSNorm(dim)) {
    register_module("tok", tok);
    for (int64_t i = 0; i < layers; ++i) blocks.emplace_back(dim, options);
    register_modules("blocks", blocks);
    register_module("norm", norm);
  }
  /// tokens [B, T] -> logits [B, T, vocab]; the head shares the embedding.
  Tensor operator()(const Tensor& tokens, const nn::AttentionContext& context = {}) const {
    Tensor x = tok(tokens);
    for (const nn::TransformerBlock& block : blocks) x = block(x, context);
    return linear(norm(x), tok.weight);
  }
};

}  // namespace weft::examples
