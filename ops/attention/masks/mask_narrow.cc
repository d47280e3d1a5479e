// Half the width gives twice the lanes: values computed for every point are computed in i32 if their ranges fit. Values
// that depend only on q or only on kv are converted once for each row or column.
#include <limits>

#include "ops/attention/masks/mask_analysis.h"

namespace weft::internal {

class MaskNarrowing {
 public:
  MaskNarrowing(const MaskProgram& from, MaskProgram& to, std::span<const MaskRange> ranges)
      : from_(from), to_(to), ranges_(ranges), wide_(from.instrs_.size(), -1), narrow_(from.instrs_.size(), -1) {}

  void run() {
    to_.tables_ = from_.tables_;
    to_.output_ = wide(from_.output_);
  }

 private:
  static bool mixed(const MaskInstr& in) { return (in.deps & kDepQ) && (in.deps & kDepKv); }
  bool fits(int32_t i) const {
    const MaskInstr& in = from_.instrs_[i];
    return in.dtype == kInt32 || (in.dtype == kInt64 && ranges_[i].fits_i32());
  }
  /// True for instructions computed for every point, from i64 operands that fit, to a bool or a value that fits.
  bool shrinks(int32_t i) const {
    const MaskInstr& in = from_.instrs_[i];
    if (in.kind != MaskInstr::kPointwise || !mixed(in) || in.in_dtype != kInt64) return false;
    if (in.dtype == kInt64 && !fits(i)) return false;
    for (int32_t a : in.args)
      if (from_.instrs_[a].dtype == kInt64 && !fits(a)) return false;
    return kernels::pointwise_contiguous_fn(in.op, kInt32) != nullptr;
  }

  /// The instruction that computes value i in its own dtype.
  int32_t wide(int32_t i) {
    if (wide_[i] >= 0) return wide_[i];
    const MaskInstr& in = from_.instrs_[i];
    if (shrinks(i)) {
      const int32_t n = shrunk(i);
      return wide_[i] = in.dtype == kInt64 ? cast(n, kInt64, in) : n;
    }
    MaskInstr copy = in;
    for (int32_t& a : copy.args) a = wide(a);
    return wide_[i] = push(std::move(copy));
  }

  /// The instruction that computes value i, which fits, in i32.
  int32_t narrow(int32_t i) {
    if (narrow_[i] >= 0) return narrow_[i];
    const MaskInstr& in = from_.instrs_[i];
    if (in.dtype == kInt32) return narrow_[i] = wide(i);
    if (shrinks(i)) return narrow_[i] = shrunk(i);
    if (in.kind == MaskInstr::kCast && in.in_dtype == kInt32) return narrow_[i] = wide(in.args[0]);
    if (in.kind == MaskInstr::kConst) {
      MaskInstr number;
      number.dtype = kInt32;
      const int32_t v = static_cast<int32_t>(in.integer());
      __builtin_memcpy(number.value, &v, 4);
      return narrow_[i] = push(std::move(number));
    }
    return narrow_[i] = cast(wide(i), kInt32, in);
  }

  int32_t shrunk(int32_t i) {
    if (narrow_[i] >= 0) return narrow_[i];
    MaskInstr in = from_.instrs_[i];
    for (int32_t& a : in.args) a = from_.instrs_[a].dtype == kInt64 ? narrow(a) : wide(a);
    in.in_dtype = kInt32;
    in.fn = kernels::pointwise_contiguous_fn(in.op, kInt32);
    if (in.dtype == kInt64) in.dtype = kInt32;
    return narrow_[i] = push(std::move(in));
  }

  int32_t cast(int32_t x, DType to, const MaskInstr& of) {
    MaskInstr in;
    in.kind = MaskInstr::kCast;
    in.dtype = to;
    in.in_dtype = to_.instrs_[x].dtype;
    in.args = {x};
    in.deps = of.deps;
    in.line = of.line;
    return push(std::move(in));
  }
  int32_t push(MaskInstr in) {
    to_.instrs_.push_back(std::move(in));
    return static_cast<int32_t>(to_.instrs_.size()) - 1;
  }

  const MaskProgram& from_;
  MaskProgram& to_;
  std::span<const MaskRange> ranges_;
  std::vector<int32_t> wide_, narrow_;  // index: instruction of from_; narrow_ of a bool: its shrunk form
};

MaskProgram MaskProgram::narrowed(int64_t batch, int64_t heads, int64_t q_len, int64_t kv_len) const {
  if (batch <= 0 || heads <= 0 || q_len <= 0 || kv_len <= 0) return *this;
  TableBounds bounds;
  MaskAnalysis analysis(*this, bounds, MaskRange::between(0, batch - 1), MaskRange::between(0, heads - 1));
  analysis.over(0, q_len, 0, kv_len);
  MaskProgram out;
  MaskNarrowing(*this, out, analysis.ranges()).run();
  return out;
}

}  // namespace weft::internal
