// User functions that change attention: functions of one score, or of the indices of one query and one key. They are
// traced once into a Graph of 0-d values. The block-mask analysis, the generated kernels, the interpreter and the f64
// reference use the same graph.
#pragma once
#include <functional>

#include "framework/dispatch/arg.h"
#include "framework/dispatch/capture.h"
#include "ops/core/functions/vmap.h"
#include "ops/core/pointwise.h"

namespace weft {

/// One score and its position.
struct Score {
  Tensor value;  // scale * q[b, h, q] . k[b, h / group, kv], 0-d f32
  Index b, h, q, kv;
};

/// A function of one score that returns its replacement (a 0-d floating-point value).
class ScoreMod {
 public:
  using Fn = std::function<Tensor(const Score&)>;
  ScoreMod() = default;
  template <class F>
  requires(std::is_invocable_r_v<Tensor, F&, const Score&> && !std::is_same_v<std::decay_t<F>, ScoreMod>) ScoreMod(F fn)
      : fn_(std::move(fn)) {}
  Tensor operator()(const Score& s) const { return fn_(s); }
  explicit operator bool() const { return static_cast<bool>(fn_); }
  /// The mod with positions shifted: it modifies the score at (q, kv) as if it were at (q + dq, kv + dkv).
  ScoreMod shift(int64_t dq, int64_t dkv) const;

 private:
  Fn fn_;
};

/// A function of (b, h, q, kv) that returns whether the query sees the key (a 0-d bool). Masks compose with &, | and !.
class MaskMod {
 public:
  using Fn = std::function<Tensor(Index, Index, Index, Index)>;
  MaskMod() = default;
  template <class F>
  requires(std::is_invocable_r_v<Tensor, F&, Index, Index, Index, Index> && !std::is_same_v<std::decay_t<F>, MaskMod> &&
           !std::is_base_of_v<Tensor, std::decay_t<F>>)  // a table can be called with indices, too
      MaskMod(F fn)
      : fn_(std::move(fn)) {}
  Tensor operator()(const Index& b, const Index& h, const Index& q, const Index& kv) const { return fn_(b, h, q, kv); }
  explicit operator bool() const { return static_cast<bool>(fn_); }
  /// The mask with positions shifted: its value at (q, kv) is this mask's value at (q + dq, kv + dkv). The shift dq =
  /// Skv - Sq aligns the last query with the last key, as in FlashAttention: causal().shift(Skv - Sq, 0).
  MaskMod shift(int64_t dq, int64_t dkv) const;

 private:
  Fn fn_;
};
MaskMod operator&(MaskMod a, MaskMod b);
MaskMod operator|(MaskMod a, MaskMod b);
MaskMod operator!(MaskMod a);

namespace internal {
/// The mask's graph: inputs b, h, q, kv (i64), then the tensors that it closes over (`lifted`); one 0-d bool output.
/// Computations on those tensors only (table[0], table.to(kFloat32)) are done before, by ordinary ops. Throws, naming
/// the op, if another op is not pointwise on 0-d values or an index into a captured tensor, or is random. On a GPU,
/// indices and score are on the device of the call, where the tables are.
Body trace_mask(const MaskMod& mask, Device device = Device::cpu());
/// The mod's graph: inputs value (of this dtype), b, h, q, kv, then the tensors that it closes over; one 0-d output of
/// the dtype.
Body trace_score(const ScoreMod& mod, DType dtype = kFloat32, Device device = Device::cpu());
}  // namespace internal

}  // namespace weft
