// The conformance suite of flex_attention: every common mask and score_mod, each as a mod and, written separately, as a
// plain function of numbers; and attention with its derivative in f64 over all points, with bounds on a kernel's
// errors.
#pragma once
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "ops/attention/flex_attention.h"

namespace weft::testing {

/// Random numbers by seed, the same on every machine.
class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(seed) {}
  /// Uniform in [0, n).
  int64_t below(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }
  /// Uniform in [lo, hi].
  int64_t between(int64_t lo, int64_t hi) { return lo + below(hi - lo + 1); }
  /// Uniform in [lo, hi), rounded to f32.
  double real(double lo, double hi) {
    return static_cast<float>(lo + (hi - lo) * static_cast<double>(engine_() >> 11) * 0x1p-53);
  }

 private:
  std::mt19937_64 engine_;
};

struct AttentionSizes {
  int64_t b = 1, kv_b = 1, hq = 1, hkv = 1, sq = 1, skv = 1, d = 8, dv = 8;
  int64_t longest() const { return std::max(sq, skv); }
};

/// A mask, and an independent rule for which keys a query sees.
struct MadeMask {
  MaskMod mod;  // none: every query sees every key
  std::function<bool(int64_t b, int64_t h, int64_t q, int64_t kv)> seen;
};
struct NamedMask {
  const char* name;
  MadeMask (*make)(const AttentionSizes&, Dice&);
};
std::span<const NamedMask> conformance_masks();

/// The value of a score_mod at one point, for the score s.
struct ScorePoint {
  double value = 0;
  double slope = 1;  // d value / ds
  double size = 0;   // sum of the magnitudes of the intermediate values that are rounded
  double curve = 0;  // |d slope / ds|
  struct Read {
    int table = 0;
    int64_t at = 0;
    double slope = 0;  // d value / d table[at]
    double curve = 0;  // |d slope / ds|
  };
  static constexpr int kMost = 16;
  int reads = 0;
  Read read[kMost];
  /// Records a read of a learned table.
  void reads_from(int table, int64_t at, double slope, double curve = 0) { read[reads++] = {table, at, slope, curve}; }
};

/// A score_mod over learned tables (f32 here; the mod is built from tensors of any type that can represent their
/// values).
struct MadeScore {
  std::vector<Tensor> tables;
  std::function<ScoreMod(std::span<const Tensor> tables)> mod;  // none: scores are not modified
  std::function<ScorePoint(int64_t b, int64_t h, int64_t q, int64_t kv, double s)> at;
};
struct NamedScore {
  const char* name;
  MadeScore (*make)(const AttentionSizes&, Dice&);
};
std::span<const NamedScore> conformance_scores();

/// Operands, and weights of the results, as doubles that the dtype can represent.
struct AttentionValues {
  std::vector<double> q, k, v, dout, dlse;
};

/// Random doubles in [-1, 1) that the dtype can represent, and their tensor.
struct RandomOperand {
  Tensor tensor;
  std::vector<double> values;
  RandomOperand(DType type, const Shape& shape, Dice& dice);
};

/// A result and the largest allowed error of a kernel.
struct Bounded {
  std::vector<double> value, bound;
};
/// Fails the running test at the first element that exceeds its bound.
void expect_within(const char* what, const Tensor& got, const Bounded& want);
/// How operands of products are rounded: as in the CPU's kernels; in 16 bits if the type has no more (tensor cores); or
/// all f32 operands to 11 bits (TF32).
enum class Products { kCpu, kTensorCores, kTf32 };
/// softmax(score(scale q k^T) where mask) v and the derivative of sum(out dout) + sum(lse dlse), point by point in f64.
/// Bounds are derived from the unit roundoffs of the type in which scores and sums are computed (`wide`), of the
/// operands of products (`narrow`: 0 if they are as wide), of results and of tables.
struct DenseAttention {
  Bounded out, lse, max, dq, dk, dv;
  std::vector<Bounded> tables;
  /// type: of q, k, v and the results; table_types: of the tables.
  DenseAttention(const AttentionSizes& s, DType type, double scale, const AttentionValues& x, const MadeMask& mask,
                 const MadeScore& score, std::span<const DType> table_types, Products products = Products::kCpu);
};

}  // namespace weft::testing
