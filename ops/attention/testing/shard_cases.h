// Shared by tests of attention on shards: calls with every kind of mod, and the whole's results for comparison.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "framework/dispatch/dispatch.h"
#include "framework/testing/compare.h"
#include "framework/testing/values.h"
#include "ops/attention/flex_attention.h"
#include "ops/attention/record.h"
#include "ops/attention/sequence_layout.h"
#include "ops/core/core.h"

namespace weft::testing {

struct ShardSizes {
  int64_t b = 2, hq = 4, hkv = 2, sq = 32, skv = 32, d = 8, dv = 5;
  int64_t group() const { return hq / hkv; }
};

/// A named mod with its own tables (f64 or f32, as q).
struct ShardCase {
  const char* name;
  std::function<FlexAttentionOptions(const ShardSizes&, DType, Random&)> make;
};

inline Tensor document_ids(int64_t n) {
  std::vector<int64_t> id;
  for (int64_t i = 0; i < n; ++i) id.push_back(i < n / 5 ? 0 : i < n / 2 + 1 ? 1 : 2);
  return Tensor::from_vector<int64_t>(id, {n});
}

/// The layout of one document: rank i owns chunks i and 2c - 1 - i.
inline Tensor head_tail_layout(int64_t length, int64_t ranks) {
  return document_layout(zeros({length}, {.dtype = kInt64}), ranks);
}

inline std::vector<ShardCase> shard_cases() {
  using O = FlexAttentionOptions;
  const MaskMod causal = [](Index, Index, Index q, Index kv) { return q >= kv; };
  return {
      {"no mod", [](const ShardSizes&, DType, Random&) { return O{}; }},
      {"causal", [=](const ShardSizes&, DType, Random&) { return O{.mask_mod = causal}; }},
      {"window",
       [](const ShardSizes&, DType, Random&) {
         return O{.mask_mod = [](Index, Index, Index q, Index kv) { return (q >= kv) & (q - kv <= 5); }};
       }},
      {"documents",
       [=](const ShardSizes& s, DType, Random&) {
         const Tensor id = document_ids(std::max(s.sq, s.skv));
         return O{.mask_mod = causal & MaskMod([id](Index, Index, Index q, Index kv) { return eq(id[q], id[kv]); })};
       }},
      {"prefix",
       [](const ShardSizes& s, DType, Random&) {
         const Tensor length = arange(s.b, {.dtype = kInt64}) * 7 + 3;
         return O{.mask_mod = [length](Index b, Index, Index q, Index kv) { return (kv < length[b]) | (q >= kv); }};
       }},
      {"by head",
       [](const ShardSizes&, DType, Random&) {
         return O{.mask_mod = [](Index b, Index h, Index q, Index kv) {
           return ne(q, 3) & (remainder(kv + q + h * 2 + b, 3) != 0);
         }};
       }},
      {"alibi",
       [=](const ShardSizes& s, DType t, Random& random) {
         const Tensor slope = random_tensor(t, {s.hq}, random, 0, 0.3);
         return O{
             .score_mod = [slope](const Score& c) { return c.value + slope[c.h] * cast(c.kv - c.q, slope.dtype()); },
             .mask_mod = causal};
       }},
      {"relative bias",
       [](const ShardSizes& s, DType t, Random& random) {
         const Tensor bias = random_tensor(t, {s.hq, s.sq + s.skv}, random, -1, 1);
         return O{.score_mod = [bias, n = s.skv](const Score& c) { return c.value + bias[c.h][c.q - c.kv + n]; }};
       }},
      {"soft cap, two reads",
       [=](const ShardSizes& s, DType t, Random& random) {
         const Tensor bias = random_tensor(t, {std::max(s.sq, s.skv)}, random, -1, 1);
         const Tensor one = random_tensor(t, {s.b}, random, 0.5, 1);
         return O{.score_mod = [=](const Score& c) { return tanh(c.value * one[c.b]) * 2 + bias[c.q] * bias[c.kv]; },
                  .mask_mod = causal};
       }},
      // Rows and keys that a large finite number masks: the mean of v where all keys have the same score.
      {"huge scores",
       [](const ShardSizes&, DType, Random&) {
         return O{.score_mod = [](const Score& c) {
           return where(logical_or(remainder(c.q, 3) == 0, c.kv < 5), c.value - 1e30, c.value);
         }};
       }},
      {"dropout", [=](const ShardSizes&, DType, Random&) { return O{.mask_mod = causal, .dropout_p = 0.3}; }},
  };
}

/// A call of the whole: operands of attention, its results, gradients of them, and the results of attention_backward.
struct WholeCall {
  ShardSizes s;
  internal::AttentionCall call;
  std::vector<Tensor> out, upstream, back;

  WholeCall(const ShardSizes& sizes, DType t, const ShardCase& c, uint64_t seed, int64_t fixed_tables = 0) : s(sizes) {
    Random random(seed);
    const Tensor q = random_tensor(t, {s.b, s.hq, s.sq, s.d}, random, -1, 1);
    const Tensor k = random_tensor(t, {s.b, s.hkv, s.skv, s.d}, random, -1, 1);
    const Tensor v = random_tensor(t, {s.b, s.hkv, s.skv, s.dv}, random, -1, 1);
    FlexAttentionOptions o = c.make(s, is_floating(t) && itemsize(t) < 4 ? kFloat32 : t, random);
    o.enable_gqa = true;
    call = internal::attention_call(q, k, v, o);
    if (fixed_tables) call.attrs = call.attrs.with("fixed_tables", fixed_tables);
    out = run(attention_op, call.operands);
    upstream = {random_tensor(t, out[0].shape(), random, -1, 1),
                where(isfinite(out[1]), random_tensor(out[1].dtype(), out[1].shape(), random, -1, 1), 0.0)};
    std::vector<Tensor> in = call.operands;
    for (const Tensor& x : {out[0], out[1], out[2], upstream[0], upstream[1]}) in.push_back(x);
    back = run(attention_backward_op, in);
  }
  std::vector<Tensor> run(const OpDef& op, const std::vector<Tensor>& in) const {
    if (in[0].dtype() == kFloat64) return op.decompose(call.attrs, in);
    std::vector<const Tensor*> at;
    for (const Tensor& x : in) at.push_back(&x);
    return dispatch_multi(op, at, call.attrs);
  }
};

/// Adds parts at their positions in a whole.
class Assembled {
 public:
  explicit Assembled(const Tensor& like) : shape_(like.shape()), values_(static_cast<size_t>(like.numel()), 0) {}
  /// Adds `part`, whose index i of dim d has position at[d][i]; dims beyond `at` are whole.
  void add(const Tensor& part, const std::vector<std::vector<int64_t>>& at) {
    const std::vector<Real> from = to_reals(part);
    for (int64_t i = 0; i < part.numel(); ++i) {
      int64_t rest = i, to = 0, stride = 1;
      for (int d = shape_.size() - 1; d >= 0; --d) {
        const int64_t here = rest % part.size(d);
        rest /= part.size(d);
        to += (d < static_cast<int>(at.size()) ? at[static_cast<size_t>(d)][static_cast<size_t>(here)] : here) * stride;
        stride *= shape_[d];
      }
      values_[static_cast<size_t>(to)] += from[static_cast<size_t>(i)];
    }
  }
  /// Checks that every element is within `bound` of the whole's; infinities must be equal.
  ::testing::AssertionResult is(const Tensor& whole, double bound) const {
    const std::vector<Real> want = to_reals(whole);
    for (size_t i = 0; i < want.size(); ++i) {
      const bool same =
          std::isinf(static_cast<double>(want[i])) ? values_[i] == want[i] : std::abs(values_[i] - want[i]) <= bound;
      if (!same)
        return ::testing::AssertionFailure() << "element " << i << " is " << static_cast<double>(values_[i])
                                             << "; want " << static_cast<double>(want[i]) << " within " << bound;
    }
    return ::testing::AssertionSuccess();
  }

 private:
  Shape shape_;
  std::vector<Real> values_;
};

/// Bounds on the difference of results with two orders of summation, for operands, gradients and tables of magnitude 1
/// and score_mods with derivatives of magnitude up to 2. Probabilities of a row sum to 1 (1 / (1 - p) with dropout), so
/// the gradients of a row of scores sum to at most 4 (dv + 1) in magnitude; each score, exponential and sum has at most
/// d + keys + 32 roundings.
struct ShardBounds {
  double out, lse, dq, dk, table;
  ShardBounds(const ShardSizes& s, DType t, bool dropout) {
    const double u = t == kFloat64 ? 0x1p-53 : unit_roundoff(t), grow = dropout ? 2 : 1;
    const double n = static_cast<double>(s.d + s.skv + 32), rows = static_cast<double>(s.sq * s.group());
    const double score = 4 * static_cast<double>(s.d);  // bound of a score, its logarithms and shifts
    out = u * n * grow * 2;
    lse = u * n * score;
    const double ds = 8 * static_cast<double>(s.dv + 1) * grow;
    dq = u * n * ds;
    dk = u * (n + rows) * ds * rows;
    table = u * (n + rows) * ds * rows * static_cast<double>(s.b * s.hkv);
  }
};

}  // namespace weft::testing
