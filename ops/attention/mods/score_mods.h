// Ready-made modifications of scores. Their tensors are captured and get gradients where these are wanted.
#pragma once
#include <vector>

#include "ops/attention/mods/mod.h"

namespace weft::attention {

using Loc = std::source_location;  // location of the call, for errors

/// s + slope(h) * (kv - q) with slopes 2^(-8 (h + 1) / heads). If heads is not a power of 2: the slopes of the next
/// lower power of 2, then every second slope of the next higher one (Press et al. 2022).
ScoreMod alibi(int64_t heads, Loc loc = Loc::current());
/// Same with given slopes [H] or [B, H].
ScoreMod alibi(const Tensor& slopes, Loc loc = Loc::current());
/// s - slope * |q - kv|, slopes [H] or [B, H]: FlashAttention's alibi_slopes if later keys are visible, too. If the
/// lengths differ, use alibi_symmetric(slopes).shift(Skv - Sq, 0).
ScoreMod alibi_symmetric(const Tensor& slopes, Loc loc = Loc::current());
/// f32 [heads]: alibi's slopes.
Tensor alibi_slopes(int64_t heads, Loc loc = Loc::current());
/// cap * tanh(s / cap) (Gemma 2), with tanh_fast.
ScoreMod softcap(double cap, Loc loc = Loc::current());
/// s + table[h][clip(kv - q) + max - 1] for a table [H, 2 max - 1]: distances beyond max - 1 use the end entries (Shaw
/// et al. 2018).
ScoreMod relative_bias(const Tensor& table, Loc loc = Loc::current());
/// s + table[h][bucket(kv - q)] for a table [H, num_buckets]: T5's buckets, exact for small distances, logarithmic up
/// to max_distance (Raffel et al. 2020).
ScoreMod t5_bias(const Tensor& table, bool bidirectional = true, int64_t num_buckets = 32, int64_t max_distance = 128,
                 Loc loc = Loc::current());
/// T5's bucket of kv - q = relative.
int64_t t5_bucket(int64_t relative, bool bidirectional, int64_t num_buckets, int64_t max_distance);
/// s + bias[h], bias [H].
ScoreMod head_bias(const Tensor& bias, Loc loc = Loc::current());

ScoreMod compose(std::vector<ScoreMod> mods);
/// Applies the mods in order: each gets the value of the mod before it.
template <class... M>
requires(sizeof...(M) > 0) ScoreMod compose(ScoreMod first, const M&... more) {
  return compose(std::vector<ScoreMod>{std::move(first), ScoreMod(more)...});
}

}  // namespace weft::attention
