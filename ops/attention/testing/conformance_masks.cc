// The masks of the conformance suite, each with a plain rule for a loop.
#include <algorithm>
#include <cstdlib>

#include "ops/attention/testing/conformance.h"
#include "ops/core/core.h"

namespace weft::testing {
namespace {

using namespace attention;
using Sizes = AttentionSizes;
using Ints = std::vector<int64_t>;

Tensor tensor(const Ints& v, Shape shape) { return Tensor::from_vector<int64_t>(v, shape); }
int64_t mod(int64_t a, int64_t n) { return (a % n + n) % n; }
int64_t clamp(int64_t x, int64_t lo, int64_t hi) { return std::min(std::max(x, lo), hi); }
int64_t up(int64_t n, int64_t d) { return (n + d - 1) / d; }
Ints numbers(int64_t n, Dice& dice, int64_t lo, int64_t hi) {
  Ints v(n);
  for (auto& x : v) x = dice.between(lo, hi);
  return v;
}
// Ascending ids of documents with about `mean` tokens each.
Ints documents(int64_t n, Dice& dice, int64_t mean) {
  Ints v(n);
  for (int64_t i = 0, d = 0; i < n; ++i) v[i] = d += dice.below(mean) == 0 ? dice.between(1, 3) : 0;
  return v;
}
// Ends of `parts` segments of [0, n), some of them empty.
Ints ends(int64_t n, int64_t parts, Dice& dice) {
  Ints v = numbers(parts, dice, 0, n);
  v.push_back(0);
  std::sort(v.begin(), v.end());
  return v;
}

MadeMask lower(const Sizes&, Dice&) {
  return {causal(), [](auto, auto, int64_t q, int64_t k) { return q >= k; }};
}
MadeMask window(const Sizes&, Dice& dice) {
  const int64_t sizes[] = {0, 5, 63, 64, 200}, w = sizes[dice.below(5)];
  return {sliding_window(w), [w](auto, auto, int64_t q, int64_t k) { return q - k >= 0 && q - k <= w; }};
}
MadeMask prefix(const Sizes& s, Dice& dice) {
  const int64_t n = dice.between(0, s.skv);
  return {prefix_lm(n), [n](auto, auto, int64_t q, int64_t k) { return k < n || q >= k; }};
}
MadeMask prefixes(const Sizes& s, Dice& dice) {
  const Ints n = numbers(s.b, dice, 0, s.skv);
  return {prefix_lm(tensor(n, {s.b})), [n](int64_t b, auto, int64_t q, int64_t k) { return k < n[b] || q >= k; }};
}
MadeMask jagged(const Sizes& s, Dice& dice) {
  const Ints id = documents(s.longest(), dice, 90);
  return {document(tensor(id, {s.longest()})), [id](auto, auto, int64_t q, int64_t k) { return id[q] == id[k]; }};
}
MadeMask mixed_documents(const Sizes& s, Dice& dice) {
  const int64_t n = s.longest();
  const Ints id = numbers(s.b * n, dice, 0, 3);
  return {document(tensor(id, {s.b, n}).to(kInt32)),
          [id, n](int64_t b, auto, int64_t q, int64_t k) { return id[b * n + q] == id[b * n + k]; }};
}
MadeMask causal_documents(const Sizes& s, Dice& dice) {
  const Ints id = documents(s.longest(), dice, 150);
  return {document(tensor(id, {s.longest()})) & causal(),
          [id](auto, auto, int64_t q, int64_t k) { return id[q] == id[k] && q >= k; }};
}
MadeMask offsets(const Sizes& s, Dice& dice) {
  Ints at = ends(s.longest(), 6, dice);
  at.back() = std::max<int64_t>(at.back(), 1);
  const Tensor cu = tensor(at, {static_cast<int64_t>(at.size())});
  auto doc = [at](int64_t i) { return std::upper_bound(at.begin(), at.end(), i) - at.begin() - 1; };
  return {document_offsets(cu, prefix_lm(7)), [at, doc](auto, auto, int64_t q, int64_t k) {
            if (q >= at.back() || k >= at.back() || doc(q) != doc(k)) return false;
            return k - at[doc(k)] < 7 || q >= k;
          }};
}
MadeMask ends_early(const Sizes& s, Dice& dice) {
  const Ints n = numbers(s.b, dice, 0, s.skv);
  return {padding(tensor(n, {s.b})), [n](int64_t b, auto, auto, int64_t k) { return k < n[b]; }};
}
MadeMask strided(const Sizes&, Dice& dice) {
  const int64_t w = dice.between(0, 120), d = dice.between(1, 5);
  return {dilated(w, d),
          [w, d](auto, auto, int64_t q, int64_t k) { return std::abs(q - k) <= w && std::abs(q - k) % d == 0; }};
}
MadeMask batched(const Sizes&, Dice& dice) {
  const int64_t n = dice.between(1, 200);
  return {batchify(causal(), n), [n](auto, auto, int64_t q, int64_t k) { return q / n == k / n && q % n >= k % n; }};
}
MadeMask stream(const Sizes&, Dice& dice) {
  const int64_t w = dice.between(0, 150), sinks = dice.between(0, 6);
  return {stream_with_sinks(w, sinks),
          [w, sinks](auto, auto, int64_t q, int64_t k) { return q >= k && (q - k <= w || k < sinks); }};
}
MadeMask letter_a(const Sizes&, Dice& dice) {
  const int64_t first = dice.between(0, 140), local = dice.between(0, 100);
  return {a_shape(first, local),
          [first, local](auto, auto, int64_t q, int64_t k) { return q >= k && (k < first || q - k < local); }};
}
MadeMask draft_tree(const Sizes& s, Dice& dice) {
  const int64_t n = s.longest();
  Ints parent(n);
  for (int64_t i = 0; i < n; ++i)
    parent[i] = i == 0 || dice.below(40) == 0 ? -1 : dice.between(std::max<int64_t>(0, i - 6), i - 1);
  std::vector<char> sees(n * n);  // found by walks to the roots
  for (int64_t i = 0; i < n; ++i)
    for (int64_t a = i; a >= 0; a = parent[a]) sees[i * n + a] = 1;
  return {tree(tensor(parent, {n})), [sees, n](auto, auto, int64_t q, int64_t k) { return sees[q * n + k] != 0; }};
}
MadeMask edges(const Sizes& s, Dice& dice) {
  const int64_t n = s.longest();
  std::vector<uint8_t> edge(n * n);
  for (auto& e : edge) e = dice.below(4) == 0;
  return {graph(Tensor::from_vector<uint8_t>(edge, {n, n})),
          [edge, n](auto, auto, int64_t q, int64_t k) { return edge[q * n + k] != 0; }};
}
MadeMask edges_by_head(const Sizes& s, Dice& dice) {
  const int64_t n = s.longest(), h = s.hq;
  std::vector<uint8_t> edge(s.b * h * n * n);
  for (auto& e : edge) e = dice.below(5) == 0;
  return {graph(Tensor::from_vector<uint8_t>(edge, {s.b, h, n, n}).to(kBool)),
          [edge, n, h](int64_t b, int64_t head, int64_t q, int64_t k) {
            return edge[((b * h + head) * n + q) * n + k] != 0;
          }};
}
MadeMask spans(const Sizes& s, Dice& dice) {
  const Ints at = ends(s.longest(), 5, dice);
  Ints span;
  for (size_t i = 0; i + 1 < at.size(); i += 2) span.insert(span.end(), {at[i], at[i + 1]});
  const int64_t n = static_cast<int64_t>(span.size()) / 2;
  return {transfusion(tensor(span, {n, 2})), [span](auto, auto, int64_t q, int64_t k) {
            for (size_t i = 0; i < span.size(); i += 2)
              if (q >= span[i] && q < span[i + 1] && k >= span[i] && k < span[i + 1]) return true;
            return q >= k;
          }};
}
MadeMask spans_by_entry(const Sizes& s, Dice& dice) {
  Ints span;
  for (int64_t b = 0; b < s.b; ++b) {
    const Ints at = ends(s.longest(), 3, dice);
    span.insert(span.end(), {at[0], at[1], at[2], at[3]});
  }
  return {transfusion(tensor(span, {s.b, 2, 2})), [span](int64_t b, auto, int64_t q, int64_t k) {
            for (size_t i = 4 * b; i < 4 * b + 4; i += 2)
              if (q >= span[i] && q < span[i + 1] && k >= span[i] && k < span[i + 1]) return true;
            return q >= k;
          }};
}
MadeMask noised(const Sizes& s, Dice& dice) {
  const int64_t n = up(s.longest(), 2), block = dice.between(1, 40);
  return {block_diffusion(block, n), [n, block](auto, auto, int64_t q, int64_t k) {
            const bool clean_q = q >= n, clean_k = k >= n;
            const int64_t of_q = (q - (clean_q ? n : 0)) / block, of_k = (k - (clean_k ? n : 0)) / block;
            if (clean_q) return clean_k && of_k <= of_q;
            return clean_k ? of_k < of_q : of_k == of_q;
          }};
}
MadeMask drafts(const Sizes& s, Dice& dice) {
  const int64_t block = dice.between(1, 16), n = up(s.sq, block), context = dice.between(0, s.skv);
  const Ints anchor = numbers(s.b * n, dice, -1, s.skv);
  return {dflash(tensor(anchor, {s.b, n}), block, context),
          [anchor, block, n, context](int64_t b, auto, int64_t q, int64_t k) {
            const int64_t at = anchor[b * n + q / block];
            if (at < 0) return false;
            return k < context ? k < at : (k - context) / block == q / block;
          }};
}
MadeMask steps(const Sizes& s, Dice& dice) {
  const int64_t n = dice.between(1, s.skv);
  const Ints length = numbers(s.b, dice, 0, n);
  return {multi_token(n, tensor(length, {s.b})), [n, length](int64_t b, auto, int64_t q, int64_t k) {
            if (q >= length[b] || k % n >= length[b]) return false;
            return k < n ? k <= q : k % n == q;
          }};
}
MadeMask images(const Sizes& s, Dice& dice) {
  const int64_t tokens = dice.between(1, 30), n = up(s.skv, tokens);
  Ints interval;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t lo = dice.between(0, s.sq);
    interval.insert(interval.end(), {lo, lo + dice.between(0, s.sq)});
  }
  return {flamingo(tensor(interval, {n, 2}), tokens), [interval, tokens](auto, auto, int64_t q, int64_t k) {
            return q >= interval[k / tokens * 2] && q < interval[k / tokens * 2 + 1];
          }};
}
MadeMask pages(const Sizes& s, Dice& dice) {
  const int64_t size = dice.between(1, 40), n = up(s.skv, size), shift = dice.between(0, 50);
  const Ints page = numbers(s.b * n, dice, -1, n), length = numbers(s.b, dice, 0, s.skv);
  return {paged(tensor(page, {s.b, n}), size, causal().shift(shift, 0), tensor(length, {s.b})),
          [=](int64_t b, auto, int64_t q, int64_t k) {
            const int64_t p = page[b * n + k / size], at = p * size + k % size;
            return p >= 0 && at < length[b] && q + shift >= at;
          }};
}
MadeMask by_head(const Sizes&, Dice&) {
  return {per_head({causal(), sliding_window(9), !causal(), noop_mask}), [](auto, int64_t h, int64_t q, int64_t k) {
            return h == 0 ? q >= k : h == 1 ? q >= k && q - k <= 9 : h == 2 ? q < k : h == 3;
          }};
}

// Random kernel extents: odd, at most n.
int64_t odd(Dice& dice, int64_t n) { return 2 * dice.below((n + 1) / 2) + 1; }
bool near(int64_t q, int64_t k, int64_t n, int64_t kernel) {
  return std::abs(clamp(q, kernel / 2, n - 1 - kernel / 2) - k) <= kernel / 2;
}

MadeMask line(const Sizes& s, Dice& dice) {
  const int64_t n = s.longest(), kernel = odd(dice, n);
  return {neighborhood_1d(n, kernel), [=](auto, auto, int64_t q, int64_t k) { return near(q, k, n, kernel); }};
}
MadeMask image(const Sizes& s, Dice& dice) {
  const int64_t w = 12, h = std::max<int64_t>(3, up(s.longest(), w)), kh = odd(dice, h), kw = odd(dice, w);
  return {neighborhood_2d({h, w}, {kh, kw}),
          [=](auto, auto, int64_t q, int64_t k) { return near(q / w, k / w, h, kh) && near(q % w, k % w, w, kw); }};
}
MadeMask video(const Sizes& s, Dice& dice) {
  const int64_t w = 8, h = 6, f = std::max<int64_t>(3, up(s.longest(), w * h)), kf = odd(dice, f), kh = odd(dice, h),
                kw = odd(dice, w);
  return {neighborhood_3d({f, h, w}, {kf, kh, kw}), [=](auto, auto, int64_t q, int64_t k) {
            return near(q / (w * h), k / (w * h), f, kf) && near(q / w % h, k / w % h, h, kh) &&
                   near(q % w, k % w, w, kw);
          }};
}
MadeMask tiled_image(const Sizes& s, Dice& dice) {
  const int64_t w = 16, th = 4, tw = 8, h = th * up(s.longest(), w * th), kh = odd(dice, h), kw = odd(dice, w);
  return {neighborhood_2d_tiled({h, w}, {kh, kw}, {th, tw}), [=](auto, auto, int64_t q, int64_t k) {
            auto y = [=](int64_t i) { return i / (th * tw) / (w / tw) * th + i % (th * tw) / tw; };
            auto x = [=](int64_t i) { return i / (th * tw) % (w / tw) * tw + i % tw; };
            return near(y(q), y(k), h, kh) && near(x(q), x(k), w, kw);
          }};
}
MadeMask tiled_video(const Sizes& s, Dice& dice) {
  const int64_t w = 8, h = 6, tw = 4, th = 3, tf = 2, f = tf * up(s.longest(), w * h * tf), kf = odd(dice, f),
                kh = odd(dice, h), kw = odd(dice, w), v = tw * th * tf;
  return {neighborhood_3d_tiled({f, h, w}, {kf, kh, kw}, {tf, th, tw}), [=](auto, auto, int64_t q, int64_t k) {
            auto z = [=](int64_t i) { return i / v / (h / th * (w / tw)) * tf + i % v / (th * tw); };
            auto y = [=](int64_t i) { return i / v / (w / tw) % (h / th) * th + i % v / tw % th; };
            auto x = [=](int64_t i) { return i / v % (w / tw) * tw + i % v % tw; };
            return near(z(q), z(k), f, kf) && near(y(q), y(k), h, kh) && near(x(q), x(k), w, kw);
          }};
}
MadeMask curve(const Sizes& s, Dice& dice) {
  int64_t n = 4;
  while (n * n < s.longest()) n *= 2;
  const int64_t kh = odd(dice, n), kw = odd(dice, n);
  auto bits = [](int64_t i) {
    int64_t r = 0;
    for (int k = 0; k < 10; ++k) r |= (i >> (2 * k) & 1) << k;
    return r;
  };
  return {neighborhood_2d_morton(n, {kh, kw}), [=](auto, auto, int64_t q, int64_t k) {
            return near(bits(q >> 1), bits(k >> 1), n, kh) && near(bits(q), bits(k), n, kw);
          }};
}
MadeMask tiles_2d(const Sizes& s, Dice& dice) {
  const int64_t tiles = std::max<int64_t>(3, s.longest() * 4 / 5 / 32), vision = tiles * 2 * 16,
                text = dice.between(0, s.longest());
  // tiles x 2 tiles of 4 x 4, a window of 3 x 1.
  return {sta_2d({tiles * 4, 8}, {12, 4}, {4, 4}, text), [=](auto, auto, int64_t q, int64_t k) {
            if (q >= vision || k >= vision) return k < vision + text && text > 0;
            return near(q / 32, k / 32, tiles, 3) && q / 16 % 2 == k / 16 % 2;
          }};
}
MadeMask tiles_3d(const Sizes& s, Dice& dice) {
  const int64_t f = std::max<int64_t>(1, s.longest() * 4 / 5 / 192), vision = f * 6 * 32,
                text = dice.between(0, s.longest());
  // f x 3 x 2 tiles of 2 x 4 x 4, a window of 1 x 3 x 1.
  return {sta_3d({f * 2, 12, 8}, {2, 12, 4}, {2, 4, 4}, text), [=](auto, auto, int64_t q, int64_t k) {
            if (q >= vision || k >= vision) return k < vision + text && text > 0;
            return q / 192 == k / 192 && q / 32 % 2 == k / 32 % 2;
          }};
}
MadeMask spatial(const Sizes&, Dice& dice) {
  const int64_t p = dice.between(0, 20), f = dice.between(1, 60), w = dice.between(0, 60);
  return {svg_spatial(p, f, w),
          [=](auto, auto, int64_t q, int64_t k) { return q < p || k < p || k - p < f || std::abs(q - k) < w; }};
}
MadeMask temporal(const Sizes&, Dice& dice) {
  const int64_t p = dice.between(0, 20), f = dice.between(1, 60), w = dice.between(0, 10);
  return {svg_temporal(p, f, w), [=](auto, auto, int64_t q, int64_t k) {
            return q < p || k < p || std::abs(mod(q - p, f) - mod(k - p, f)) < w;
          }};
}
MadeMask upper(const Sizes&, Dice&) {
  return {!causal(), [](auto, auto, int64_t q, int64_t k) { return q < k; }};
}
MadeMask shifted(const Sizes& s, Dice&) {  // the last query sees the last key
  const int64_t by = s.skv - s.sq;
  return {causal().shift(by, 0), [=](auto, auto, int64_t q, int64_t k) { return q + by >= k; }};
}
MadeMask by_entry(const Sizes& s, Dice& dice) {
  const Ints w = numbers(s.b * s.hq, dice, -3, 200);
  const int64_t heads = s.hq;
  const Tensor t = tensor(w, {s.b, s.hq});
  return {[t](Index b, Index h, Index q, Index kv) { return abs(q - kv) <= t[b][h]; },
          [w, heads](int64_t b, int64_t h, int64_t q, int64_t k) { return std::abs(q - k) <= w[b * heads + h]; }};
}
MadeMask empty_rows(const Sizes&, Dice&) {
  return {[](Index, Index h, Index q, Index kv) { return ne(remainder(q + h, 3), 1) & (q + 7 >= kv); },
          [](auto, int64_t h, int64_t q, int64_t k) { return (q + h) % 3 != 1 && q + 7 >= k; }};
}
MadeMask late_keys(const Sizes&, Dice&) {  // rows see nothing of their first block; some see nothing at all
  return {[](Index, Index, Index q, Index kv) { return (kv >= 128) & (remainder(q, 5) < remainder(kv, 7)); },
          [](auto, auto, int64_t q, int64_t k) { return k >= 128 && q % 5 < k % 7; }};
}
MadeMask holes(const Sizes&, Dice&) {
  return {[](Index, Index h, Index q, Index kv) { return ne(q, 3) & ne(q, 20) & (remainder(kv + q + h, 3) == 0); },
          [](auto, int64_t h, int64_t q, int64_t k) { return q != 3 && q != 20 && (k + q + h) % 3 == 0; }};
}
MadeMask nothing(const Sizes&, Dice&) {
  return {[](Index, Index, Index q, Index kv) { return (q < 0) & (kv < 0); },
          [](auto, auto, int64_t, int64_t) { return false; }};
}
MadeMask mixture(const Sizes& s, Dice& dice) {
  const Ints id = documents(s.longest(), dice, 60);
  return {or_masks(and_masks(causal(), document(tensor(id, {s.longest()})), !sliding_window(3)), sliding_window(1),
                   [](Index, Index h, Index, Index kv) { return (h == 0) & (kv < 4); }),
          [id](auto, int64_t h, int64_t q, int64_t k) {
            return (q - k > 3 && id[q] == id[k]) || q == k || q == k + 1 || (h == 0 && k < 4);
          }};
}
MadeMask all(const Sizes&, Dice&) {
  return {MaskMod(), [](auto, auto, int64_t, int64_t) { return true; }};
}

constexpr NamedMask kMasks[] = {
    {"none", all},
    {"causal", lower},
    {"sliding window", window},
    {"prefix", prefix},
    {"prefix by entry", prefixes},
    {"documents", jagged},
    {"mixed documents by entry", mixed_documents},
    {"causal documents", causal_documents},
    {"document offsets", offsets},
    {"padding", ends_early},
    {"dilated", strided},
    {"batchify", batched},
    {"stream with sinks", stream},
    {"a shape", letter_a},
    {"tree", draft_tree},
    {"graph", edges},
    {"graph by head", edges_by_head},
    {"transfusion", spans},
    {"transfusion by entry", spans_by_entry},
    {"block diffusion", noised},
    {"dflash", drafts},
    {"multi token", steps},
    {"flamingo", images},
    {"paged", pages},
    {"per head", by_head},
    {"neighborhood 1d", line},
    {"neighborhood 2d", image},
    {"neighborhood 3d", video},
    {"neighborhood 2d tiled", tiled_image},
    {"neighborhood 3d tiled", tiled_video},
    {"neighborhood morton", curve},
    {"sta 2d", tiles_2d},
    {"sta 3d", tiles_3d},
    {"svg spatial", spatial},
    {"svg temporal", temporal},
    {"not causal", upper},
    {"shifted causal", shifted},
    {"window by entry and head", by_entry},
    {"empty rows", empty_rows},
    {"nothing in the first block", late_keys},
    {"holes", holes},
    {"nothing", nothing},
    {"mixture", mixture},
};

}  // namespace

std::span<const NamedMask> conformance_masks() { return kMasks; }

}  // namespace weft::testing
