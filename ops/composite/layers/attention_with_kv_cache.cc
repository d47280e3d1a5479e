#include "ops/composite/layers/attention_with_kv_cache.h"

#include <algorithm>

#include "framework/base/saturate.h"
#include "ops/composite/indexing.h"
#include "ops/composite/layers/rope.h"
#include "ops/composite/precision.h"
#include "ops/core/core.h"

namespace weft {

using internal::floating_of;
using internal::LineScope;

namespace {

constexpr const char* kOp = "attention_with_kv_cache";

/// The call's extents, checked.
struct CallExtents {
  int64_t batch, heads, queries, dim, kv_heads, rows, capacity, added = 0;  // rows: of an entry or page

  CallExtents(const Tensor& q, const Tensor& k, const Tensor& v, const KvCacheAttentionOptions& o) {
    WEFT_CHECK(q.dim() == 4 && k.dim() == 4 && v.dim() == 4, kOp, ": q ", q.shape(), ", k_cache ", k.shape(),
               ", v_cache ", v.shape(),
               "; need [B, Hq, Sq, D] and [B, Hkv, capacity, D] (of [B, S, H, D], transpose(1, 2))");
    WEFT_CHECK(q.dtype() == k.dtype() && q.dtype() == v.dtype(), kOp, ": dtypes of q, k_cache, v_cache are ", q.dtype(),
               ", ", k.dtype(), ", ", v.dtype(), "; need one, as in q.to(k_cache.dtype())");
    batch = q.size(0), heads = q.size(1), queries = q.size(2), dim = q.size(3), kv_heads = k.size(1), rows = k.size(2);
    WEFT_CHECK(k.size(3) == dim && v.size(0) == k.size(0) && v.size(1) == kv_heads && v.size(2) == rows &&
                   kv_heads > 0 && heads % kv_heads == 0,
               kOp, ": q ", q.shape(), ", k_cache ", k.shape(), ", v_cache ", v.shape(),
               "; need [B, Hq, Sq, D], [.., Hkv, rows, D] and [.., Hkv, rows, Dv], Hq a multiple of Hkv");
    WEFT_CHECK(
        !(o.cache_batch_idx.defined() && o.block_table.defined()), kOp,
        ": got both cache_batch_idx and block_table; need one: block_table's rows say where each entry's keys are");
    capacity = rows;
    if (o.block_table.defined()) {
      check_integers("block_table", o.block_table, {2}, "[B, pages of an entry]");
      capacity = saturating_mul(capacity, o.block_table.size(1));
    } else if (o.cache_batch_idx.defined()) {
      check_integers("cache_batch_idx", o.cache_batch_idx, {1}, "[B]");
    } else {
      WEFT_CHECK(k.size(0) == batch, kOp, ": k_cache ", k.shape(), " has ", k.size(0), " entries and q ", q.shape(),
                 " has ", batch, "; need equal numbers, or .cache_batch_idx of integers [", batch, "]");
    }
    if (o.cache_seqlens.defined()) check_integers("cache_seqlens", o.cache_seqlens, {0, 1}, "[B], or 0-d for all");
    if (o.cache_leftpad.defined()) check_integers("cache_leftpad", o.cache_leftpad, {1}, "[B]");
    WEFT_CHECK(o.k.defined() == o.v.defined(), kOp, ": got only one of k and v to append; need both or none");
    if (o.k.defined()) {
      added = o.k.dim() == 4 ? o.k.size(2) : 0;
      WEFT_CHECK(o.k.shape() == Shape({batch, kv_heads, added, dim}) &&
                     o.v.shape() == Shape({batch, kv_heads, added, v.size(3)}) && o.k.dtype() == k.dtype() &&
                     o.v.dtype() == v.dtype(),
                 kOp, ": k to append is ", o.k.type(), " and v is ", o.v.type(), " for k_cache ", k.type(),
                 " and v_cache ", v.type(), "; need [", batch, ", ", kv_heads, ", Snew, ", dim, "] and [", batch, ", ",
                 kv_heads, ", Snew, ", v.size(3), "] of its dtype");
      WEFT_CHECK(o.cache_seqlens.defined(), kOp,
                 ": got k and v to append and no cache_seqlens; need the rows that are taken, as in .cache_seqlens = "
                 "full({",
                 batch, "}, 0, {.dtype = kInt64}) for an empty cache");
    }
    WEFT_CHECK(o.rotary_cos.defined() == o.rotary_sin.defined(), kOp,
               ": got only one of rotary_cos and rotary_sin; need both or none");
    if (o.rotary_cos.defined()) {
      const Tensor &c = o.rotary_cos, &s = o.rotary_sin;
      WEFT_CHECK(o.k.defined(), kOp, ": got rotary_cos and no k to append; need k and v, or rope(q) before the call");
      WEFT_CHECK(c.dim() == 2 && c.shape() == s.shape() && is_floating(c.dtype()) && is_floating(s.dtype()) &&
                     2 * c.size(1) <= dim && c.size(1) > 0,
                 kOp, ": rotary_cos is ", c.type(), " and rotary_sin is ", s.type(), " for head dim ", dim,
                 "; need [positions, R / 2] with R of 2 to ", dim, ", as of rope_tables(arange(", capacity, "), ", dim,
                 ")");
    }
    for (int64_t side : o.window_size)
      WEFT_CHECK(side >= -1, kOp, ": window_size is (", o.window_size[0], ", ", o.window_size[1],
                 "); need 0 or more keys on each side, or -1 for all, as in {256, 0}");
    WEFT_CHECK(o.softcap >= 0, kOp, ": softcap is ", o.softcap, "; need 0 for none, or more, as in 50.0");
    if (const Tensor& a = o.alibi_slopes; a.defined())
      WEFT_CHECK(is_floating(a.dtype()) && (a.shape() == Shape({heads}) || a.shape() == Shape({batch, heads})), kOp,
                 ": alibi_slopes is ", a.type(), "; need floating-point values [", heads, "] or [", batch, ", ", heads,
                 "], as of attention::alibi_slopes(", heads, ")");
    check_values(k, o);
  }

 private:
  void check_integers(const char* name, const Tensor& t, std::initializer_list<int> ranks, const char* shape) const {
    const bool ranked = std::find(ranks.begin(), ranks.end(), t.dim()) != ranks.end();
    WEFT_CHECK(is_integral(t.dtype()) && ranked && (t.dim() == 0 || t.size(0) == batch), kOp, ": ", name, " is ",
               t.type(), " for q of ", batch, " entries; need integers ", shape, ", B = ", batch);
  }

  // Checks the values that are known now; traced ones are checked when the step runs.
  void check_values(const Tensor& k, const KvCacheAttentionOptions& o) const {
    auto known = [](const Tensor& t) { return t.defined() && !t.is_traced(); };
    if (known(o.cache_seqlens)) {
      const std::vector<int64_t> n = cast(o.cache_seqlens, kInt64).to_vector<int64_t>();
      for (size_t b = 0; b < n.size(); ++b)
        WEFT_CHECK_AS(kOutOfRange, n[b] >= 0 && n[b] <= capacity - added, kOp, ": cache_seqlens[", b, "] is ", n[b],
                      " and ", added, " tokens are appended to a cache of ", capacity, " rows; need 0 to ",
                      capacity - added);
      if (known(o.block_table) && added > 0) {
        const std::vector<int64_t> t = cast(o.block_table, kInt64).to_vector<int64_t>();
        for (int64_t b = 0; b < batch; ++b) {
          const int64_t from = n[n.size() == 1 ? 0 : static_cast<size_t>(b)];
          for (int64_t p = from / rows; p * rows < from + added; ++p) {
            const int64_t page = t[static_cast<size_t>(b * (capacity / rows) + p)];
            WEFT_CHECK_AS(kOutOfRange, page >= 0 && page < k.size(0), kOp, ": tokens are appended to page block_table[",
                          b, "][", p, "], which is ", page, "; need a page of [0, ", k.size(0), ")");
          }
        }
      }
      if (known(o.rotary_cos))
        for (int64_t at : n)
          WEFT_CHECK_AS(kOutOfRange, at + std::max(added, queries) <= o.rotary_cos.size(0), kOp, ": rotary_cos ",
                        o.rotary_cos.shape(), " ends before position ", at + std::max(added, queries) - 1,
                        "; need a row for each position");
    }
    if (known(o.cache_leftpad)) {
      const std::vector<int64_t> n = cast(o.cache_leftpad, kInt64).to_vector<int64_t>();
      for (size_t b = 0; b < n.size(); ++b)
        WEFT_CHECK_AS(kOutOfRange, n[b] >= 0 && n[b] <= capacity, kOp, ": cache_leftpad[", b, "] is ", n[b],
                      " for a cache of ", capacity, " rows; need 0 to ", capacity);
    }
    if (known(o.cache_batch_idx))
      for (int64_t e : cast(o.cache_batch_idx, kInt64).to_vector<int64_t>())
        WEFT_CHECK_AS(kOutOfRange, e >= 0 && e < k.size(0), kOp, ": cache_batch_idx has ", e,
                      "; need entries of k_cache ", k.shape(), ", 0 to ", k.size(0) - 1);
  }
};

// Counts of rows of the cache, as i64. Traced counts are checked when the step runs.
Tensor rows_of_cache(const Tensor& t, int64_t most) {
  const Tensor n = cast(t, kInt64);
  return t.is_traced() ? internal::in_range(n, saturating_add(most, 1), kOp) : n;
}

Tensor positions_from(const Tensor& first, int64_t count) {
  return unsqueeze(first, -1) + arange(count, {.dtype = kInt64, .device = first.device()});
}

// x [B, H, S, D] with its first features rotated by rows `at` [B or 1, S] of the tables.
Tensor rotated(const Tensor& x, const Tensor& at, const KvCacheAttentionOptions& o) {
  auto rows = [&](const Tensor& table) {
    Shape s{at.size(0), 1, at.size(1), table.size(1)};
    return reshape(index_select(table, 0, reshape(at, {-1})), s);
  };
  const RopeTables tables{rows(o.rotary_cos), rows(o.rotary_sin)};
  const int64_t width = 2 * o.rotary_cos.size(1);
  if (width == x.size(3)) return apply_rope(x, tables, o.rotary_interleaved);
  return cat({apply_rope(slice(x, -1, 0, width), tables, o.rotary_interleaved), slice(x, -1, width, x.size(3))}, -1);
}

// cache [N, H, R, D] with rows `at` (of [N H R, D]) replaced by x [B, H, S, D].
Tensor appended(const Tensor& cache, const Tensor& at, const Tensor& x) {
  const int64_t d = cache.size(3);
  const Tensor lines = reshape(cache, {cache.size(0) * cache.size(1) * cache.size(2), d});
  return reshape(index_copy(lines, 0, reshape(at, {-1}), reshape(x, {-1, d})), cache.shape());
}

}  // namespace

KvCacheAttention attention_with_kv_cache(const Arg& query, const Arg& key, const Arg& value,
                                         const KvCacheAttentionOptions& o) {
  LineScope line(query.line());
  Tensor q = floating_of(query, kOp), keys = floating_of(key, kOp), values = floating_of(value, kOp);
  const CallExtents c(q, keys, values, o);
  const bool local = o.causal || o.window_size[0] >= 0 || o.window_size[1] >= 0;

  Tensor table;  // [B, n] pages; an entry of the cache is one page
  if (o.block_table.defined()) table = cast(o.block_table, kInt64);
  if (o.cache_batch_idx.defined()) table = unsqueeze(cast(o.cache_batch_idx, kInt64), 1);
  // [B], or 0-d if all entries are alike.
  Tensor before, length;
  if (o.cache_seqlens.defined()) {
    before = rows_of_cache(o.cache_seqlens, c.capacity - c.added);
    length = c.added > 0 ? before + c.added : before;
  }
  auto by_entry = [&](const Tensor& t) { return t.dim() == 0 ? broadcast_to(reshape(t, {1}), {c.batch}) : t; };

  if (o.k.defined() && c.added > 0) {
    Tensor k = o.k;
    const Tensor at = positions_from(by_entry(before), c.added);  // [B, Snew]
    if (o.rotary_cos.defined()) {
      k = rotated(k, at, o);
      const Tensor first = by_entry(before);
      q = rotated(
          q, local ? positions_from(first, c.queries) : broadcast_to(unsqueeze(first, -1), {c.batch, c.queries}), o);
    }
    Tensor entry = unsqueeze(arange(c.batch, {.dtype = kInt64}), 1), row = at;
    if (table.defined()) {
      entry = gather(table, 1, minimum(floor_divide(at, c.rows), table.size(1) - 1));
      row = remainder(at, c.rows);
    }
    // A row after the end, or of a page that does not exist, is -1: an error at run time.
    const Tensor fits = logical_and(lt(at, c.capacity), ge(entry, 0));
    const Tensor head = reshape(arange(c.kv_heads, {.dtype = kInt64}), {1, c.kv_heads, 1});
    const Tensor lines =
        where(unsqueeze(fits, 1), (unsqueeze(entry, 1) * c.kv_heads + head) * c.rows + unsqueeze(row, 1), -1);
    keys = appended(keys, lines, k);
    values = appended(values, lines, o.v);
  }

  const Tensor pad = o.cache_leftpad.defined() ? rows_of_cache(o.cache_leftpad, c.capacity) : Tensor();
  FlexAttentionOptions f{.scale = o.scale, .enable_gqa = true, .page_table = table};
  // A query's position minus its index.
  auto shift = [length, c](const Index& b) -> Tensor { return (length.dim() ? length[b] : length) - c.queries; };
  const int64_t fixed = c.capacity - c.queries;
  auto position = [length, shift, fixed](const Index& b, const Index& i) -> Tensor {
    return length.defined() ? i + shift(b) : i + fixed;
  };
  const auto [left, right] = o.window_size;
  const bool all = !length.defined() && !local && !o.cache_leftpad.defined();
  if (!all) {
    f.mask_mod = [=, causal = o.causal, leftpad = pad](Index b, Index, Index i, Index j) {
      Tensor seen;
      auto also = [&](const Tensor& rule) { seen = seen.defined() ? seen & rule : rule; };
      if (length.defined() && !causal) also(j < (length.dim() ? length[b] : length));
      if (causal) also(position(b, i) >= j);
      if (left >= 0) also(position(b, i) - j <= left);
      if (right >= 0 && !causal) also(j - position(b, i) <= right);
      if (leftpad.defined()) also(j >= leftpad[b]);
      return seen;
    };
  }
  if (o.softcap > 0) f.score_mod = attention::softcap(o.softcap);
  if (o.alibi_slopes.defined()) {
    const ScoreMod alibi = [=, slopes = o.alibi_slopes](const Score& s) {
      return s.value - (slopes.dim() == 2 ? slopes[s.b][s.h] : slopes[s.h]) * abs(position(s.b, s.q) - s.kv);
    };
    f.score_mod = f.score_mod ? attention::compose(f.score_mod, alibi) : alibi;
  }
  const AttentionResult r = flex_attention_aux(q, keys, values, f);
  return {r.out, r.lse, keys, values};
}

}  // namespace weft
