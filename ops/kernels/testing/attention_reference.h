// Attention in f64 over the whole score matrix, and random calls of the kernels, for tests.
#pragma once
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "ops/kernels/attention/attention.h"
#include "ops/kernels/testing/test_arrays.h"
#include "ops/numerics/philox.h"

namespace weft::kernels {

inline constexpr double kNegInf = -std::numeric_limits<double>::infinity();

/// One call: shapes and options.
struct Case {
  int64_t b = 1, hq = 1, hkv = 1, sq = 1, skv = 1, d = 8, dv = 8;
  DType type = kFloat32;
  int64_t kv_b = 0;  // 0: b
  enum QkvLayout { contiguous, rows_of_heads, odd } layout = contiguous;
  enum Mask { none, fill, blocks } mask = none;
  int64_t block_q = 128, block_kv = 128;
  bool mask_per_head = false;
  double dropout = 0;
  enum Hook { no_hook, softcap, bias } hook = no_hook;
  uint64_t seed = 1;
};

/// Random bits of a mask, its block mask and a call that uses them.
class Call {
 public:
  explicit Call(const Case& c)
      : c(c),
        q(c.type, {c.b, c.hq, c.sq, c.d}, strides(c, c.b, c.hq, c.sq, c.d)),
        k(c.type, {kv_b(), c.hkv, c.skv, c.d}, strides(c, kv_b(), c.hkv, c.skv, c.d)),
        v(c.type, {kv_b(), c.hkv, c.skv, c.dv}, strides(c, kv_b(), c.hkv, c.skv, c.dv)) {
    q.fill_uniform(c.seed, -2, 2), k.fill_uniform(c.seed + 1, -2, 2), v.fill_uniform(c.seed + 2, -1, 1);
    a.q = q, a.k = k, a.v = v;
    a.scale = 1 / std::sqrt(static_cast<double>(c.d));
    if (c.mask != Case::none) make_mask();
    a.dropout = {c.dropout, 77, 5, 3};
    static const ScoreHook cap{&cap_forward, &cap_backward, nullptr}, add{&bias_forward, &bias_backward, nullptr};
    if (c.hook == Case::softcap) a.score = &cap;
    if (c.hook == Case::bias) a.score = &add;
  }
  Call(const Call&) = delete;

  int64_t kv_b() const { return c.kv_b ? c.kv_b : c.b; }
  bool visible(int64_t b, int64_t h, int64_t i, int64_t j) const {
    return c.mask == Case::none || bits[((b * c.hq + h) * c.sq + i) * c.skv + j];
  }
  static double softcap_of(double x) { return 2 * std::tanh(x / 2); }
  static double bias_of(int64_t h, int64_t i, int64_t j) { return 0.01 * static_cast<double>(j - i) * (h + 1); }
  bool kept(int64_t b, int64_t h, int64_t i, int64_t j) const {
    if (c.dropout == 0) return true;
    const uint64_t at = ((b * c.hq + h) * c.sq + i) * c.skv + j;
    uint32_t words[4];
    philox4x32(a.dropout.seed, at / 4, a.dropout.op_id, static_cast<uint32_t>(a.dropout.step), words);
    return static_cast<float>(words[at % 4] >> 8) * 0x1p-24f >= static_cast<float>(c.dropout);
  }

  const Case c;
  Array q, k, v;
  Attention a;
  std::vector<char> bits;

 private:
  static Shape strides(const Case& c, int64_t b, int64_t h, int64_t s, int64_t d) {
    if (c.layout == Case::rows_of_heads) return {s * h * d, d, h * d, 1};
    if (c.layout == Case::odd) return {h * s * d * 3 + 5, s * d * 3 + 1, d * 3, 3};
    return {h * s * d, s * d, d, 1};
  }

  void make_mask() {
    std::mt19937_64 random(c.seed + 9);
    bits.resize(c.b * c.hq * c.sq * c.skv);
    const int64_t nq = (c.sq + c.block_q - 1) / c.block_q, nk = (c.skv + c.block_kv - 1) / c.block_kv;
    const int64_t mb = c.mask_per_head ? c.b : 1, mh = c.mask_per_head ? c.hq : 1;
    // Whole blocks: empty, full or mixed. Mixed blocks are random, with some empty rows.
    for (int64_t b = 0; b < mb; ++b)
      for (int64_t h = 0; h < mh; ++h)
        for (int64_t i = 0; i < nq; ++i) {
          offsets.push_back(static_cast<int64_t>(ranges.size()));
          for (int64_t j = 0; j < nk; ++j) {
            const int kind = static_cast<int>(random() % 4);
            std::vector<char> tile(c.block_q * c.block_kv);
            for (int64_t r = 0; r < c.block_q; ++r) {
              const bool empty = random() % 5 == 0, half = random() % 7 == 0;
              for (int64_t s = 0; s < c.block_kv; ++s) {
                const bool on = kind == 1 || (kind > 1 && !empty && random() % 2 && (!half || s >= c.block_kv / 2));
                tile[r * c.block_kv + s] = on && i * c.block_q + r < c.sq && j * c.block_kv + s < c.skv;
              }
            }
            for (int64_t bb = b; bb < (mb == 1 ? c.b : b + 1); ++bb)
              for (int64_t hh = h; hh < (mh == 1 ? c.hq : h + 1); ++hh)
                for (int64_t r = 0; r < c.block_q; ++r)
                  for (int64_t s = 0; s < c.block_kv; ++s)
                    if (tile[r * c.block_kv + s])
                      bits[((bb * c.hq + hh) * c.sq + i * c.block_q + r) * c.skv + j * c.block_kv + s] = 1;
            if (kind == 0) continue;
            int32_t at = BlockRange::kFull;
            if (kind == 2) at = BlockRange::kUnknown;
            if (kind == 3) {
              at = static_cast<int32_t>(tiles.size() * 8 / (c.block_q * c.block_kv));
              for (size_t x = 0; x < tile.size(); x += 8) {
                uint8_t byte = 0;
                for (int y = 0; y < 8; ++y) byte |= static_cast<uint8_t>(tile[x + y] << y);
                tiles.push_back(byte);
              }
            }
            const int32_t first = static_cast<int32_t>(j);
            if (at < 0 && static_cast<int64_t>(ranges.size()) > offsets.back() && ranges.back().tile == at &&
                ranges.back().last == first)
              ranges.back().last = first + 1;
            else
              ranges.push_back({first, first + 1, at});
          }
        }
    offsets.push_back(static_cast<int64_t>(ranges.size()));
    view.batch = mb, view.heads = mh, view.q_len = c.sq, view.kv_len = c.skv;
    view.block_q = c.block_q, view.block_kv = c.block_kv;
    view.offsets = offsets.data(), view.ranges = ranges.data(), view.tiles = tiles.data();
    mask_fill = {&run_fill, this};
    a.mask = &mask_fill;
    if (c.mask == Case::blocks) a.blocks = &view;
  }
  static void run_fill(const void* context, int64_t b, int64_t h, int64_t q0, int64_t kv0, int64_t rows, int64_t cols,
                       uint8_t* bits, int64_t row_bytes) {
    const Call& call = *static_cast<const Call*>(context);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < row_bytes; ++j) {
        uint8_t byte = 0;
        for (int64_t x = 0; x < 8 && j * 8 + x < cols; ++x)
          byte |= static_cast<uint8_t>(call.visible(b, h, q0 + i, kv0 + j * 8 + x) << x);
        bits[i * row_bytes + j] = byte;
      }
  }
  static void cap_forward(const void*, const ScoreTile& t, float* s) {
    for (int64_t i = 0; i < t.rows; ++i)
      for (int64_t j = 0; j < t.cols; ++j) s[i * t.ld + j] = static_cast<float>(softcap_of(t.scale * s[i * t.ld + j]));
  }
  static void cap_backward(const void*, const ScoreTile& t, const float* raw, float* grad) {
    for (int64_t i = 0; i < t.rows; ++i)
      for (int64_t j = 0; j < t.cols; ++j) {
        const double y = std::tanh(t.scale * raw[i * t.ld + j] / 2.0);
        grad[i * t.ld + j] *= static_cast<float>(1 - y * y);
      }
  }
  static void bias_forward(const void*, const ScoreTile& t, float* s) {
    for (int64_t i = 0; i < t.rows; ++i)
      for (int64_t j = 0; j < t.cols; ++j)
        s[i * t.ld + j] = t.scale * s[i * t.ld + j] + static_cast<float>(bias_of(t.head, t.q0 + i, t.kv0 + j));
  }
  static void bias_backward(const void*, const ScoreTile&, const float*, float*) {}

  std::vector<int64_t> offsets;
  std::vector<BlockRange> ranges;
  std::vector<uint8_t> tiles;
  BlockMaskView view;
  MaskFill mask_fill;
};

/// The dense computation in f64, from the operands as stored.
struct Reference {
  std::vector<double> out, lse, max;
  std::vector<double> dq, dk, dv;
  /// Sums of the absolute values of the terms of each result; bounds are derived from them.
  std::vector<double> out_size, dq_size, dk_size, dv_size;
  double largest_score = 0;

  explicit Reference(const Call& call, const Array* dout = nullptr, const std::vector<float>* dlse = nullptr);
};

inline Reference::Reference(const Call& call, const Array* dout_array, const std::vector<float>* dlse) {
  const Case& c = call.c;
  auto values = [](const Array& a) {
    std::vector<double> x(a.size());
    for (int64_t i = 0; i < a.size(); ++i) x[i] = a[i];
    return x;
  };
  const std::vector<double> q = values(call.q), k = values(call.k), v = values(call.v);
  const std::vector<double> dout = dout_array ? values(*dout_array) : std::vector<double>();
  auto kv_row = [&](int64_t b, int64_t h, int64_t j) {
    return ((call.kv_b() == 1 ? 0 : b) * c.hkv + h / (c.hq / c.hkv)) * c.skv + j;
  };
  const int64_t rows = c.b * c.hq * c.sq, keys = call.kv_b() * c.hkv * c.skv;
  out.assign(rows * c.dv, 0), out_size = out, lse.assign(rows, kNegInf), max.assign(rows, kNegInf);
  dq.assign(rows * c.d, 0), dq_size = dq;
  dk.assign(keys * c.d, 0), dk_size = dk, dv.assign(keys * c.dv, 0), dv_size = dv;
  std::vector<double> s(c.skv), raw(c.skv), size(c.skv), p(c.skv), dp(c.skv);
  for (int64_t b = 0; b < c.b; ++b)
    for (int64_t h = 0; h < c.hq; ++h)
      for (int64_t i = 0; i < c.sq; ++i) {
        const int64_t row = (b * c.hq + h) * c.sq + i;
        // Inner loops use pointers to rows: the sanitizers' checks of vectors would take most of the test's time.
        const double* q_row = q.data() + row * c.d;
        double top = kNegInf, total = 0;
        for (int64_t j = 0; j < c.skv; ++j) {
          s[j] = kNegInf;
          if (!call.visible(b, h, i, j)) continue;
          const double* k_row = k.data() + kv_row(b, h, j) * c.d;
          double sum = 0, sum_size = 0;
          for (int64_t x = 0; x < c.d; ++x) {
            const double term = q_row[x] * k_row[x] * call.a.scale;
            sum += term, sum_size += std::abs(term);
          }
          raw[j] = sum, size[j] = sum_size;
          if (std::isfinite(size[j])) largest_score = std::max(largest_score, size[j]);
          s[j] = c.hook == Case::softcap ? Call::softcap_of(raw[j])
                 : c.hook == Case::bias  ? raw[j] + Call::bias_of(h, i, j)
                                         : raw[j];
          if (std::isfinite(s[j])) largest_score = std::max(largest_score, std::abs(s[j]));
          top = std::max(top, s[j]);
        }
        if (top == kNegInf) continue;
        for (int64_t j = 0; j < c.skv; ++j) total += p[j] = std::exp(s[j] - top);
        lse[row] = top + std::log(total), max[row] = top;
        double *out_row = out.data() + row * c.dv, *out_size_row = out_size.data() + row * c.dv;
        for (int64_t j = 0; j < c.skv; ++j) {
          p[j] /= total;
          if (p[j] == 0 || !call.kept(b, h, i, j)) continue;
          const double *v_row = v.data() + kv_row(b, h, j) * c.dv, weight = p[j] / (1 - c.dropout);
          for (int64_t x = 0; x < c.dv; ++x) {
            const double term = weight * v_row[x];
            out_row[x] += term, out_size_row[x] += std::abs(term);
          }
        }
        if (!dout_array) continue;
        const double* dout_row = dout.data() + row * c.dv;
        double *dq_row = dq.data() + row * c.d, *dq_size_row = dq_size.data() + row * c.d, delta = 0;
        for (int64_t x = 0; x < c.dv; ++x) delta += out_row[x] * dout_row[x];
        if (dlse) delta -= (*dlse)[row];
        for (int64_t j = 0; j < c.skv; ++j) {
          if (!call.visible(b, h, i, j)) continue;
          double dot = 0, dot_size = 0;
          const int64_t kv = kv_row(b, h, j);
          const double *k_row = k.data() + kv * c.d, *v_row = v.data() + kv * c.dv;
          double *dk_row = dk.data() + kv * c.d, *dk_size_row = dk_size.data() + kv * c.d;
          double *dv_row = dv.data() + kv * c.dv, *dv_size_row = dv_size.data() + kv * c.dv;
          const double kept = call.kept(b, h, i, j) ? 1 / (1 - c.dropout) : 0, weight = p[j] * kept;
          for (int64_t x = 0; x < c.dv; ++x) {
            const double g = dout_row[x], term = g * v_row[x] * kept;
            dot += term, dot_size += std::abs(term);
            dv_row[x] += weight * g, dv_size_row[x] += weight * std::abs(g);
          }
          double slope = 1;
          if (c.hook == Case::softcap) slope = 1 - std::tanh(raw[j] / 2) * std::tanh(raw[j] / 2);
          const double ds = p[j] * (dot - delta) * slope, ds_size = p[j] * (dot_size + std::abs(delta) + 1);
          for (int64_t x = 0; x < c.d; ++x) {
            const double kk = k_row[x] * call.a.scale, qq = q_row[x] * call.a.scale;
            dq_row[x] += ds * kk, dq_size_row[x] += ds_size * std::abs(kk);
            dk_row[x] += ds * qq, dk_size_row[x] += ds_size * std::abs(qq);
          }
        }
      }
}

/// Bounds on the kernels' errors, from the unit roundoffs: of f32 (sums, exponents), of the type that operands and
/// probabilities of products are rounded to, and of the results' type.
struct Bounds {
  double out_relative, lse, max, roundoff;
  double probability, grad_relative;  // in backward
  static constexpr double kEps = 0x1p-24;

  /// narrow: products may use bf16 probabilities.
  Bounds(const Case& c, const Reference& r) {
    const double s = r.largest_score, n = static_cast<double>(c.skv), narrow = c.type == kBFloat16 ? 0x1p-8 : 0;
    const double score = (static_cast<double>(c.d) + 12) * kEps * s;  // a sum of d products, scaling, a hook
    const double exponential = score + kEps * (3 * s + 16) + 4 * kEps;
    out_relative = 2 * exponential + 2 * n * kEps + narrow;
    lse = exponential + n * kEps + 6 * kEps * (s + std::log(n + 1) + 1);
    max = score + 2 * kEps * s;
    roundoff = c.type == kFloat32 ? kEps : c.type == kBFloat16 ? 0x1p-8 : 0x1p-11;
    probability = exponential + lse;
    // delta is a dot product with `out` as stored.
    double delta = 0;
    for (size_t row = 0; row < r.lse.size(); ++row) {
      double e = 0;
      for (int64_t x = 0; x < c.dv; ++x)
        e += out(r, row * c.dv + x) + (c.dv + 4) * kEps * std::abs(r.out[row * c.dv + x]);
      delta = std::max(delta, e);
    }
    const double slope = c.hook == Case::softcap ? score + 8 * kEps : 0;
    const double terms = static_cast<double>(std::max(c.sq * (c.hq / c.hkv) * (c.kv_b == 1 ? c.b : 1), c.skv)) + 4;
    grad_relative = probability + (c.dv + 12) * kEps + delta + narrow + slope + terms * kEps;
  }
  /// The bound of an element of dq, dk or dv, for |dout| <= 1.
  double grad(double size, double value) const {
    return 1.01 * size * grad_relative + std::abs(value) * roundoff + (roundoff == 0x1p-11 ? 0x1p-25 : 0x1p-120);
  }
  double out(const Reference& r, int64_t i) const {
    return r.out_size[i] * out_relative * 1.01 + std::abs(r.out[i]) * roundoff +
           (roundoff == 0x1p-11 ? 0x1p-25 : 0x1p-120);
  }
};

}  // namespace weft::kernels
