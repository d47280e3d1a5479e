// The score_mods of the conformance suite, each with its formula and derivative in numbers.
#include <algorithm>
#include <cmath>

#include "ops/attention/testing/conformance.h"
#include "ops/core/core.h"

namespace weft::testing {
namespace {

using namespace attention;
using Sizes = AttentionSizes;
using Reals = std::vector<double>;
using Tables = std::span<const Tensor>;

/// A table of f32 values, and the same values as doubles.
struct Table {
  Tensor tensor;
  Reals values;
  Table(const Shape& shape, Dice& dice, double lo, double hi) : values(shape.numel()) {
    std::vector<float> v(values.size());
    for (size_t i = 0; i < v.size(); ++i) values[i] = v[i] = static_cast<float>(dice.real(lo, hi));
    tensor = Tensor::from_vector<float>(v, shape);
  }
};
std::vector<int64_t> numbers(int64_t n, Dice& dice, int64_t lo, int64_t hi) {
  std::vector<int64_t> v(n);
  for (auto& x : v) x = dice.between(lo, hi);
  return v;
}
double size_of(double a, double b) { return std::abs(a) + std::abs(b); }

MadeScore none(const Sizes&, Dice&) {
  return {{}, nullptr, [](auto, auto, auto, auto, double s) { return ScorePoint{s}; }};
}

MadeScore fixed_alibi(const Sizes& s, Dice&) {
  const int64_t heads = s.hq;
  auto slope = [heads](int64_t h) {  // as in the paper's code
    int64_t n = 1;
    while (2 * n <= heads) n *= 2;
    const double e = h < n ? -8.0 * (h + 1) / n : -8.0 * (2 * (h - n) + 1) / (2 * n);
    return static_cast<double>(static_cast<float>(std::exp2(e)));
  };
  return {{},
          [heads](Tables) { return alibi(heads); },
          [slope](auto, int64_t h, int64_t q, int64_t k, double s) {
            const double by = slope(h) * (k - q);
            return ScorePoint{.value = s + by, .size = 2 * std::abs(by) + std::abs(s)};
          }};
}

MadeScore learned_alibi(const Sizes& s, Dice& dice) {
  const Table t({s.hq}, dice, 0.002, 0.05);
  return {{t.tensor},
          [](Tables in) { return alibi(in[0]); },
          [t = t.values](auto, int64_t h, int64_t q, int64_t k, double s) {
            const double by = t[h] * (k - q);
            ScorePoint p{.value = s + by, .size = 2 * std::abs(by) + std::abs(s)};
            p.reads_from(0, h, k - q);
            return p;
          }};
}

MadeScore alibi_by_entry(const Sizes& s, Dice& dice) {
  const Table t({s.b, s.hq}, dice, 0.002, 0.05);
  return {{t.tensor},
          [](Tables in) { return alibi(in[0]); },
          [t = t.values, heads = s.hq](int64_t b, int64_t h, int64_t q, int64_t k, double s) {
            const double by = t[b * heads + h] * (k - q);
            ScorePoint p{.value = s + by, .size = 2 * std::abs(by) + std::abs(s)};
            p.reads_from(0, b * heads + h, k - q);
            return p;
          }};
}

MadeScore capped(const Sizes&, Dice&) {
  return {{},
          [](Tables) { return softcap(1.5); },
          [](auto, auto, auto, auto, double s) {
            const double y = std::tanh(s / 1.5);
            return ScorePoint{.value = 1.5 * y, .slope = 1 - y * y, .size = 2 * size_of(s, 1.5 * y), .curve = 1};
          }};
}

MadeScore relative(const Sizes& s, Dice& dice) {
  const int64_t far = dice.between(0, 70);
  const Table t({s.hq, 2 * far + 1}, dice, -1, 1);
  return {{t.tensor},
          [](Tables in) { return relative_bias(in[0]); },
          [t = t.values, far](auto, int64_t h, int64_t q, int64_t k, double s) {
            const int64_t at = h * (2 * far + 1) + std::clamp(k - q, -far, far) + far;
            ScorePoint p{.value = s + t[at], .size = size_of(s, t[at])};
            p.reads_from(0, at, 1);
            return p;
          }};
}

MadeScore t5(const Sizes& s, Dice& dice) {
  const bool both = dice.below(2);
  const Table t({s.hq, 32}, dice, -1, 1);
  // Buckets by their boundaries, from T5 in transformers, for 32 buckets up to distance 128.
  auto bucket = [both](int64_t r) -> int64_t {
    static constexpr int64_t kBoth[] = {8, 12, 16, 23, 32, 46, 64, 91};
    static constexpr int64_t kOne[] = {16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113};
    const int64_t base = both && r > 0 ? 16 : 0, n = both ? std::abs(r) : std::max<int64_t>(0, -r);
    if (n < (both ? 8 : 16)) return base + n;
    int64_t b = both ? 7 : 15;
    for (int64_t first : both ? std::span<const int64_t>(kBoth) : std::span<const int64_t>(kOne)) b += n >= first;
    return base + b;
  };
  return {{t.tensor},
          [both](Tables in) { return t5_bias(in[0], both); },
          [t = t.values, bucket](auto, int64_t h, int64_t q, int64_t k, double s) {
            const int64_t at = h * 32 + bucket(k - q);
            ScorePoint p{.value = s + t[at], .size = size_of(s, t[at])};
            p.reads_from(0, at, 1);
            return p;
          }};
}

MadeScore by_head(const Sizes& s, Dice& dice) {
  const Table t({s.hq}, dice, -1, 1);
  return {{t.tensor},
          [](Tables in) { return head_bias(in[0]); },
          [t = t.values](auto, int64_t h, auto, auto, double s) {
            ScorePoint p{.value = s + t[h], .size = size_of(s, t[h])};
            p.reads_from(0, h, 1);
            return p;
          }};
}

MadeScore pairs(const Sizes& s, Dice& dice) {
  const Table t({s.hq, s.sq, s.skv}, dice, -1, 1);
  return {{t.tensor},
          [](Tables in) { return ScoreMod([t = in[0]](const Score& s) { return s.value + t[s.h][s.q][s.kv]; }); },
          [t = t.values, sq = s.sq, skv = s.skv](auto, int64_t h, int64_t q, int64_t k, double s) {
            const int64_t at = (h * sq + q) * skv + k;
            ScorePoint p{.value = s + t[at], .size = size_of(s, t[at])};
            p.reads_from(0, at, 1);
            return p;
          }};
}

MadeScore twice(const Sizes& s, Dice& dice) {
  const Table t({s.longest()}, dice, -1, 1);
  return {
      {t.tensor},
      [](Tables in) { return ScoreMod([t = in[0]](const Score& s) { return s.value + t[s.q] * t[s.kv] + t[s.kv]; }); },
      [t = t.values](auto, auto, int64_t q, int64_t k, double s) {
        ScorePoint p{.value = s + t[q] * t[k] + t[k], .size = size_of(s, t[k]) + 2 * std::abs(t[q] * t[k])};
        p.reads_from(0, q, t[k]);
        p.reads_from(0, k, t[q] + 1);
        return p;
      }};
}

MadeScore distance(const Sizes&, Dice&) {
  return {{},
          [](Tables) { return ScoreMod([](const Score& s) { return s.value + (s.q - s.kv); }); },
          [](auto, auto, int64_t q, int64_t k, double s) {
            return ScorePoint{.value = s + (q - k), .size = size_of(s, q - k)};
          }};
}

MadeScore head_number(const Sizes&, Dice&) {
  return {
      {},
      [](Tables) { return ScoreMod([](const Score& s) { return s.value + s.h * 2; }); },
      [](auto, int64_t h, auto, auto, double s) { return ScorePoint{.value = s + 2 * h, .size = size_of(s, 2 * h)}; }};
}

MadeScore temperature(const Sizes& s, Dice& dice) {
  const Table one({}, dice, 0.5, 2), by_row({s.sq}, dice, 0.5, 1);
  return {{one.tensor, by_row.tensor},
          [](Tables in) { return ScoreMod([a = in[0], r = in[1]](const Score& s) { return s.value * a * r[s.q]; }); },
          [a = one.values[0], r = by_row.values](auto, auto, int64_t q, auto, double s) {
            ScorePoint p{.value = s * a * r[q], .slope = a * r[q], .size = 2 * std::abs(s * a * r[q])};
            p.reads_from(0, 0, s * r[q], r[q]);
            p.reads_from(1, q, s * a, a);
            return p;
          }};
}

MadeScore cap_and_alibi(const Sizes& s, Dice& dice) {
  const Table t({s.hq}, dice, 0.002, 0.05);
  return {{t.tensor},
          [](Tables in) { return compose(alibi(in[0]), softcap(3)); },
          [t = t.values](auto, int64_t h, int64_t q, int64_t k, double s) {
            const double x = s + t[h] * (k - q), y = std::tanh(x / 3), slope = 1 - y * y;
            ScorePoint p{.value = 3 * y,
                         .slope = slope,
                         .size = 2 * std::abs(3 * y) + slope * (std::abs(s) + 3 * std::abs(t[h] * (k - q))),
                         .curve = 1};
            p.reads_from(0, h, slope * (k - q), std::abs(k - q));
            return p;
          }};
}

// Multi-head latent attention: the inner product of the rotated part, inside the mod.
MadeScore inner_product(const Sizes& s, Dice& dice) {
  static constexpr int64_t kR = 4;
  const int64_t group = s.hq / s.hkv;
  const Table a({s.b, s.hq, s.sq, kR}, dice, -1, 1), c({s.b, s.hkv, s.skv, kR}, dice, -1, 1);
  return {{a.tensor, c.tensor},
          [group](Tables in) {
            return ScoreMod([group, a = in[0], c = in[1]](const Score& s) {
              Tensor sum = s.value;
              const Tensor row = a[s.b][s.h][s.q], key = c[s.b][floor_divide(s.h, group)][s.kv];
              for (int64_t r = 0; r < kR; ++r) {
                const Tensor at = full({}, r, {.dtype = kInt64});
                sum = sum + row[at] * key[at] * 0.25;
              }
              return sum;
            });
          },
          [a = a.values, c = c.values, s](int64_t b, int64_t h, int64_t q, int64_t k, double score) {
            ScorePoint p{.value = score, .size = std::abs(score)};
            const int64_t i = ((b * s.hq + h) * s.sq + q) * kR, j = ((b * s.hkv + h / (s.hq / s.hkv)) * s.skv + k) * kR;
            for (int64_t r = 0; r < kR; ++r) {
              p.value += a[i + r] * c[j + r] * 0.25;
              p.size += kR * std::abs(a[i + r] * c[j + r] * 0.25);
              p.reads_from(0, i + r, c[j + r] * 0.25);
              p.reads_from(1, j + r, a[i + r] * 0.25);
            }
            return p;
          }};
}

MadeScore chosen_by_integers(const Sizes& s, Dice& dice) {
  const int64_t n = s.longest();
  const std::vector<int64_t> kind = numbers(n, dice, 0, 4);
  const Tensor kinds = Tensor::from_vector<int64_t>(kind, {n}).to(kInt32);
  const Table t({5, 5}, dice, -1, 1);
  return {{t.tensor, kinds},
          [](Tables in) {
            return ScoreMod([t = in[0], kind = in[1]](const Score& s) { return s.value + t[kind[s.q]][kind[s.kv]]; });
          },
          [t = t.values, kind](auto, auto, int64_t q, int64_t k, double s) {
            const int64_t at = kind[q] * 5 + kind[k];
            ScorePoint p{.value = s + t[at], .size = size_of(s, t[at])};
            p.reads_from(0, at, 1);
            return p;
          }};
}

MadeScore narrow_table(const Sizes& s, Dice& dice) {
  Table t({s.hq, s.skv}, dice, -1, 1);
  t.tensor = t.tensor.to(kBFloat16);
  const std::vector<float> as_held = t.tensor.to(kFloat32).to_vector<float>();
  t.values.assign(as_held.begin(), as_held.end());
  return {{t.tensor},
          [](Tables in) { return ScoreMod([t = in[0]](const Score& s) { return s.value + t[s.h][s.kv]; }); },
          [t = t.values, skv = s.skv](auto, int64_t h, auto, int64_t k, double s) {
            ScorePoint p{.value = s + t[h * skv + k], .size = size_of(s, t[h * skv + k])};
            p.reads_from(0, h * skv + k, 1);
            return p;
          }};
}

MadeScore minus_infinity(const Sizes&, Dice&) {
  return {{},
          [](Tables) {
            return ScoreMod([](const Score& s) {
              return where(remainder(s.q, 4) <= remainder(s.kv, 3), s.value, -std::numeric_limits<double>::infinity());
            });
          },
          [](auto, auto, int64_t q, int64_t k, double s) {
            if (q % 4 <= k % 3) return ScorePoint{.value = s, .size = std::abs(s)};
            return ScorePoint{.value = -std::numeric_limits<double>::infinity(), .slope = 0};
          }};
}

MadeScore without_score(const Sizes& s, Dice& dice) {
  const Table t({s.skv}, dice, -1, 1);
  return {{t.tensor},
          [](Tables in) { return ScoreMod([t = in[0]](const Score& s) { return t[s.kv] * 2; }); },
          [t = t.values](auto, auto, auto, int64_t k, double) {
            ScorePoint p{.value = 2 * t[k], .slope = 0, .size = std::abs(2 * t[k])};
            p.reads_from(0, k, 2);
            return p;
          }};
}

constexpr NamedScore kScores[] = {
    {"none", none},
    {"alibi", fixed_alibi},
    {"learned alibi", learned_alibi},
    {"alibi by entry", alibi_by_entry},
    {"softcap", capped},
    {"relative bias", relative},
    {"t5 bias", t5},
    {"head bias", by_head},
    {"pair bias", pairs},
    {"a table twice", twice},
    {"distance", distance},
    {"number of the head", head_number},
    {"temperature", temperature},
    {"alibi, softcap", cap_and_alibi},
    {"inner product", inner_product},
    {"chosen by integers", chosen_by_integers},
    {"16-bit table", narrow_table},
    {"minus infinity", minus_infinity},
    {"without the score", without_score},
};

}  // namespace

std::span<const NamedScore> conformance_scores() { return kScores; }

}  // namespace weft::testing
