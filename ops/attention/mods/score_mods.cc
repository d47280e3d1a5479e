#include "ops/attention/mods/score_mods.h"

#include <cmath>

#include "ops/core/core.h"

namespace weft::attention {

using internal::LineScope;

namespace {

void check_table(const char* op, const char* name, const Tensor& t, int least, int most, const char* shapes) {
  WEFT_CHECK(t.defined() && is_floating(t.dtype()) && t.dim() >= least && t.dim() <= most, op, ": ", name, " is ",
             t.defined() ? str_cat(t.type()) : "undefined", "; need floating-point values ", shapes);
}

// The slope of a score's head, from a table [H] or [B, H].
Tensor slope_of(const Tensor& slopes, const Score& s) { return slopes.dim() == 2 ? slopes[s.b][s.h] : slopes[s.h]; }

}  // namespace

Tensor alibi_slopes(int64_t heads, Loc loc) {
  LineScope here(loc);
  WEFT_CHECK(heads >= 1, "attention::alibi: heads is ", heads, "; need 1 or more");
  int64_t even = 1;
  while (even * 2 <= heads) even *= 2;
  std::vector<float> slopes;
  for (int64_t h = 0; h < heads; ++h) {
    const double exponent = h < even ? -8.0 * static_cast<double>(h + 1) / static_cast<double>(even)
                                     : -4.0 * static_cast<double>(2 * (h - even) + 1) / static_cast<double>(even);
    slopes.push_back(static_cast<float>(std::exp2(exponent)));
  }
  return Tensor::from_vector<float>(slopes, {heads});
}

ScoreMod alibi(int64_t heads, Loc loc) {
  LineScope here(loc);
  return alibi(alibi_slopes(heads));
}

ScoreMod alibi(const Tensor& slopes, Loc loc) {
  LineScope here(loc);
  check_table("attention::alibi", "slopes", slopes, 1, 2, "[H] or [B, H]");
  return [slopes](const Score& s) { return s.value + slope_of(slopes, s) * (s.kv - s.q); };
}

ScoreMod alibi_symmetric(const Tensor& slopes, Loc loc) {
  LineScope here(loc);
  check_table("attention::alibi_symmetric", "slopes", slopes, 1, 2, "[H] or [B, H]");
  return [slopes](const Score& s) { return s.value - slope_of(slopes, s) * abs(s.q - s.kv); };
}

ScoreMod softcap(double cap, Loc loc) {
  LineScope here(loc);
  WEFT_CHECK(cap > 0, "attention::softcap: cap is ", cap, "; need a positive number, as in softcap(50.0)");
  // Multiply by 1 / cap: a division for each score takes as long as the tangent. tanh_fast's 6 ulp are less than the
  // rounding error of a score with a few products.
  return [cap](const Score& s) { return tanh_fast(s.value * (1 / cap)) * cap; };
}

ScoreMod relative_bias(const Tensor& table, Loc loc) {
  LineScope here(loc);
  check_table("attention::relative_bias", "table", table, 2, 2, "[H, 2 max - 1]");
  WEFT_CHECK(table.size(1) % 2 == 1, "attention::relative_bias: table is ", table.type(),
             "; need an odd number of distances, [H, 2 max - 1]: -(max - 1) to max - 1");
  const int64_t far = table.size(1) / 2;
  return [table, far](const Score& s) { return s.value + table[s.h][minimum(maximum(s.kv - s.q, -far), far) + far]; };
}

int64_t t5_bucket(int64_t relative, bool bidirectional, int64_t num_buckets, int64_t max_distance) {
  int64_t first = 0;
  if (bidirectional) {
    num_buckets /= 2;
    if (relative > 0) first = num_buckets;
    relative = std::abs(relative);
  } else {
    relative = relative < 0 ? -relative : 0;
  }
  const int64_t exact = num_buckets / 2;
  if (relative < exact) return first + relative;
  // Computed in f32, like the training code of the models that use it.
  const float ratio = std::log(static_cast<float>(relative) / static_cast<float>(exact)) /
                      static_cast<float>(std::log(static_cast<double>(max_distance) / static_cast<double>(exact)));
  const int64_t bucket = exact + static_cast<int64_t>(ratio * static_cast<float>(num_buckets - exact));
  return first + std::min(bucket, num_buckets - 1);
}

ScoreMod t5_bias(const Tensor& table, bool bidirectional, int64_t num_buckets, int64_t max_distance, Loc loc) {
  LineScope here(loc);
  check_table("attention::t5_bias", "table", table, 2, 2, "[H, num_buckets]");
  WEFT_CHECK(table.size(1) == num_buckets, "attention::t5_bias: table is ", table.type(), " for ", num_buckets,
             " buckets; need [H, ", num_buckets, "]");
  const int64_t exact = num_buckets / (bidirectional ? 4 : 2);
  WEFT_CHECK(exact >= 1 && max_distance > exact, "attention::t5_bias: ", num_buckets, " buckets up to distance ",
             max_distance, "; need at least ", bidirectional ? 4 : 2, " buckets and a distance above ", exact);
  // All distances from max_distance on share a bucket, so a short table defines the function.
  std::vector<int64_t> bucket;
  for (int64_t r = -max_distance; r <= max_distance; ++r)
    bucket.push_back(t5_bucket(r, bidirectional, num_buckets, max_distance));
  const Tensor buckets = Tensor::from_vector<int64_t>(bucket, {2 * max_distance + 1});
  return [table, buckets, max_distance](const Score& s) {
    const Tensor at = minimum(maximum(s.kv - s.q, -max_distance), max_distance) + max_distance;
    return s.value + table[s.h][buckets[at]];
  };
}

ScoreMod head_bias(const Tensor& bias, Loc loc) {
  LineScope here(loc);
  check_table("attention::head_bias", "bias", bias, 1, 1, "[H]");
  return [bias](const Score& s) { return s.value + bias[s.h]; };
}

ScoreMod compose(std::vector<ScoreMod> mods) {
  for (const ScoreMod& m : mods)
    WEFT_CHECK(static_cast<bool>(m), "attention::compose: a score_mod is empty; need functions of a Score");
  return [mods](const Score& s) {
    Score now = s;
    for (const ScoreMod& m : mods) now.value = m(now);
    return now.value;
  };
}

}  // namespace weft::attention
