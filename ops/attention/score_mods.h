// Ready-made modifications of scores. Tensors given to them are captured and get gradients.
#pragma once
#include <vector>

#include "ops/attention/mod.h"

namespace weft::attention {

/// s + slope(h) * (kv - q) with slopes 2^(-8 (h + 1) / heads); where heads is no power of 2, those of the next lower
/// one and then every second of the next higher one (Press et al. 2022).
ScoreMod alibi(int64_t heads);
/// The same with slopes [H] or [B, H].
ScoreMod alibi(const Tensor& slopes);
/// s - slope * |q - kv|, slopes [H] or [B, H]: what FlashAttention's alibi_slopes mean where keys behind a query count
/// too; alibi_symmetric(slopes).shift(Skv - Sq, 0) where the lengths differ.
ScoreMod alibi_symmetric(const Tensor& slopes);
/// f32 [heads]: alibi's slopes.
Tensor alibi_slopes(int64_t heads);
/// cap * tanh(s / cap) (Gemma 2), by tanh_fast.
ScoreMod softcap(double cap);
/// s + table[h][clip(kv - q) + max - 1] for a table [H, 2 max - 1]: distances beyond max - 1 share the ends (Shaw et
/// al. 2018).
ScoreMod relative_bias(const Tensor& table);
/// s + table[h][bucket(kv - q)] for a table [H, num_buckets]: T5's buckets, exact near, logarithmic up to max_distance
/// (Raffel et al. 2020).
ScoreMod t5_bias(const Tensor& table, bool bidirectional = true, int64_t num_buckets = 32, int64_t max_distance = 128);
/// T5's bucket of kv - q = relative.
int64_t t5_bucket(int64_t relative, bool bidirectional, int64_t num_buckets, int64_t max_distance);
/// s + bias[h], bias [H].
ScoreMod head_bias(const Tensor& bias);

ScoreMod compose(std::vector<ScoreMod> mods);
/// One after another: each sees the value that the one before it made.
template <class... M>
requires(sizeof...(M) > 0) ScoreMod compose(ScoreMod first, const M&... more) {
  return compose(std::vector<ScoreMod>{std::move(first), ScoreMod(more)...});
}

}  // namespace weft::attention
