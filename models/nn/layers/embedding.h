// Embedding: a table of vectors looked up by integers.
#pragma once
#include <concepts>
#include <optional>

#include "framework/dispatch/arg.h"
#include "models/nn/module.h"

namespace weft::nn {

struct EmbeddingOptions {
  double std = 1;                           // standard deviation of the normal initialisation
  std::optional<int64_t> padding_idx = {};  // this row starts at zero and gets no gradient; negative: from the end
  std::optional<double> max_norm = {};      // a call scales longer rows that it reads, in the weight
  double norm_type = 2;                     // p of this norm
};

class Embedding : public Module {
 public:
  using Module::Module;
  Parameter weight;  // [count, dim]
  Embedding(int64_t count, int64_t dim, const EmbeddingOptions& options = {},
            std::source_location loc = std::source_location::current());
  /// PyTorch's third argument: Embedding(9, 4, 0).
  template <std::integral I>
  Embedding(int64_t count, int64_t dim, I padding_idx, std::source_location loc = std::source_location::current())
      : Embedding(count, dim, EmbeddingOptions{.padding_idx = padding_idx}, loc) {}
  /// A table with these values [count, dim], frozen if `freeze`; padding_idx only stops the gradient of its row.
  static Embedding from_pretrained(const Tensor& values, bool freeze = true, const EmbeddingOptions& options = {},
                                   std::source_location loc = std::source_location::current());
  /// indices[...] -> [..., dim] in the weight's dtype; throws OutOfRange for an index outside [0, count). If max_norm
  /// is set it writes the weight, so checkpoint(), scan() and others that may run it twice refuse it.
  Tensor operator()(const Arg& indices) const;

 private:
  void limit_norms(const Tensor& indices) const;

  std::optional<int64_t> padding_idx_;  // from 0
  std::optional<double> max_norm_;
  double norm_type_ = 2;
};

}  // namespace weft::nn
