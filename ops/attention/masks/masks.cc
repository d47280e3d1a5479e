#include "ops/attention/masks/masks.h"

#include <algorithm>

#include "ops/core/core.h"

namespace weft::attention {

using internal::LineScope;

namespace {

// The largest number of positions in a table that is made here.
constexpr int64_t kMostPositions = int64_t{1} << 31;

// A captured table must have integers and one of the ranks named in `shapes`.
void check_table(const char* op, const char* name, const Tensor& t, int least, int most, const char* shapes) {
  WEFT_CHECK(t.defined(), op, ": ", name, " is undefined; need integers ", shapes);
  WEFT_CHECK(is_integral(t.dtype()) && t.dim() >= least && t.dim() <= most, op, ": ", name, " is ", t.type(),
             "; need integers ", shapes);
}

// The row of entry b if the table has one for each entry.
Tensor row_of(const Tensor& t, int dims_of_row, const Index& b) { return t.dim() > dims_of_row ? t[b] : t; }

Tensor integers(const std::vector<int64_t>& v, const Shape& shape) { return Tensor::from_vector<int64_t>(v, shape); }

// The offsets of documents, from 0 on.
std::vector<int64_t> offsets_of(const char* name, const Tensor& t) {
  check_table("attention::document_offsets", name, t, 1, 1, "[N + 1]");
  const std::vector<int64_t> at = t.to_vector<int64_t>();
  WEFT_CHECK(at.size() >= 2 && at[0] == 0 && std::is_sorted(at.begin(), at.end()) && at.back() > 0,
             "attention::document_offsets: ", name, " of ", at.size(), " numbers from ", at.empty() ? 0 : at[0], " to ",
             at.empty() ? 0 : at.back(), "; need 0 and then the end of each document, ascending, as in {0, 3, 7}");
  WEFT_CHECK_AS(kOutOfRange, at.back() < kMostPositions, "attention::document_offsets: ", name, " end at ", at.back(),
                "; need less than 2^31");
  return at;
}

}  // namespace

MaskMod causal() {
  return [](Index, Index, Index q, Index kv) { return q >= kv; };
}

MaskMod sliding_window(int64_t window, Loc loc) {
  LineScope here(loc);
  WEFT_CHECK(window >= 0, "attention::sliding_window: window is ", window,
             "; need 0 or more positions before the query, as in sliding_window(128) (Hugging Face's 129)");
  return [window](Index, Index, Index q, Index kv) { return (q >= kv) & (q - kv <= window); };
}

MaskMod sliding_window(int64_t left, int64_t right, Loc loc) {
  LineScope here(loc);
  WEFT_CHECK(left >= -1 && right >= -1, "attention::sliding_window: left is ", left, " and right is ", right,
             "; need 0 or more positions on each side, or -1 for an open one, as in sliding_window(128, 0)");
  if (left < 0 && right < 0) return noop_mask;
  return [left, right](Index, Index, Index q, Index kv) {
    if (left < 0) return kv - q <= right;
    if (right < 0) return q - kv <= left;
    return (q - kv <= left) & (kv - q <= right);
  };
}

MaskMod prefix_lm(int64_t n) {
  return [n](Index, Index, Index q, Index kv) { return (kv < n) | (q >= kv); };
}

MaskMod prefix_lm(const Tensor& n, Loc loc) {
  LineScope here(loc);
  check_table("attention::prefix_lm", "n", n, 1, 1, "[B]");
  return [n](Index b, Index, Index q, Index kv) { return (kv < n[b]) | (q >= kv); };
}

MaskMod document(const Tensor& ids, Loc loc) {
  LineScope here(loc);
  check_table("attention::document", "ids", ids, 1, 2, "[S] or [B, S]");
  return [ids](Index b, Index, Index q, Index kv) { return row_of(ids, 1, b)[q] == row_of(ids, 1, b)[kv]; };
}

MaskMod document_offsets(const Tensor& cu_seqlens, MaskMod inner, Loc loc) {
  LineScope here(loc);
  const std::vector<int64_t> at = offsets_of("cu_seqlens", cu_seqlens);
  // Each position's document, identified by its first token; one more entry for all positions after the last document.
  std::vector<int64_t> start(at.back() + 1, at.back());
  for (size_t d = 0; d + 1 < at.size(); ++d) std::fill(start.begin() + at[d], start.begin() + at[d + 1], at[d]);
  const int64_t end = at.back();
  return [starts = integers(start, {end + 1}), end, inner](Index b, Index h, Index q, Index kv) {
    const Tensor sq = starts[minimum(q, end)], skv = starts[minimum(kv, end)];
    return (sq == skv) & (sq < end) & inner(b, h, Index(q - sq), Index(kv - skv));
  };
}

MaskMod document_offsets(const Tensor& cu_seqlens_q, const Tensor& cu_seqlens_k, MaskMod inner, Loc loc) {
  LineScope here(loc);
  const std::vector<int64_t> q = offsets_of("cu_seqlens_q", cu_seqlens_q), k = offsets_of("cu_seqlens_k", cu_seqlens_k);
  WEFT_CHECK(q.size() == k.size(), "attention::document_offsets: cu_seqlens_q is ", cu_seqlens_q.type(),
             " and cu_seqlens_k is ", cu_seqlens_k.type(),
             "; need the same number of documents in both, as in {0, 1, 4} and {0, 3, 7}");
  // Document id per position (-1 or -2 past the last document), and the start of each document. The start for queries
  // is shifted so that the document's last query is aligned with its last key.
  std::vector<int64_t> of_q(q.back() + 1, -1), of_k(k.back() + 1, -2), first_q(q.back() + 1), first_k(k.back() + 1);
  for (size_t d = 0; d + 1 < q.size(); ++d) {
    std::fill(of_q.begin() + q[d], of_q.begin() + q[d + 1], static_cast<int64_t>(d));
    std::fill(of_k.begin() + k[d], of_k.begin() + k[d + 1], static_cast<int64_t>(d));
    std::fill(first_q.begin() + q[d], first_q.begin() + q[d + 1], q[d + 1] - (k[d + 1] - k[d]));
    std::fill(first_k.begin() + k[d], first_k.begin() + k[d + 1], k[d]);
  }
  const int64_t end_q = q.back(), end_k = k.back();
  return
      [of_q = integers(of_q, {end_q + 1}), of_k = integers(of_k, {end_k + 1}), first_q = integers(first_q, {end_q + 1}),
       first_k = integers(first_k, {end_k + 1}), end_q, end_k, inner](Index b, Index h, Index i, Index j) {
        const Tensor at = minimum(i, end_q), to = minimum(j, end_k);
        return (of_q[at] == of_k[to]) & inner(b, h, Index(i - first_q[at]), Index(j - first_k[to]));
      };
}

MaskMod padding(const Tensor& lengths, Loc loc) {
  LineScope here(loc);
  check_table("attention::padding", "lengths", lengths, 1, 1, "[B]");
  return [lengths](Index b, Index, Index, Index kv) { return kv < lengths[b]; };
}

MaskMod dilated(int64_t window, int64_t dilation, Loc loc) {
  LineScope here(loc);
  WEFT_CHECK(window >= 0 && dilation >= 1, "attention::dilated: window is ", window, " and dilation is ", dilation,
             "; need window >= 0 and dilation >= 1");
  return [window, dilation](Index, Index, Index q, Index kv) {
    return (abs(q - kv) <= window) & (remainder(q - kv, dilation) == 0);
  };
}

MaskMod batchify(MaskMod inner, int64_t n, Loc loc) {
  LineScope here(loc);
  WEFT_CHECK(n >= 1, "attention::batchify: n is ", n, "; need sequences of 1 or more tokens");
  return [inner, n](Index b, Index h, Index q, Index kv) {
    return (floor_divide(q, n) == floor_divide(kv, n)) & inner(b, h, Index(remainder(q, n)), Index(remainder(kv, n)));
  };
}

MaskMod stream_with_sinks(int64_t window, int64_t sinks, Loc loc) {
  LineScope here(loc);
  WEFT_CHECK(window >= 0 && sinks >= 0, "attention::stream_with_sinks: window is ", window, " and sinks is ", sinks,
             "; need 0 or more of each");
  return [window, sinks](Index, Index, Index q, Index kv) { return (q >= kv) & ((q - kv <= window) | (kv < sinks)); };
}

MaskMod a_shape(int64_t initial, int64_t local, Loc loc) {
  LineScope here(loc);
  WEFT_CHECK(initial >= 0 && local >= 0, "attention::a_shape: initial is ", initial, " and local is ", local,
             "; need 0 or more of each");
  return [initial, local](Index, Index, Index q, Index kv) { return (q >= kv) & ((kv < initial) | (q - kv < local)); };
}

MaskMod tree(const Tensor& parents, Loc loc) {
  LineScope here(loc);
  check_table("attention::tree", "parents", parents, 1, 1, "[N]");
  const std::vector<int64_t> p = parents.to_vector<int64_t>();
  const int64_t n = static_cast<int64_t>(p.size());
  std::vector<std::vector<int64_t>> children(n + 1);  // the last entry: roots
  for (int64_t i = 0; i < n; ++i) {
    WEFT_CHECK(p[i] >= -1 && p[i] < n && p[i] != i, "attention::tree: parents[", i, "] is ", p[i],
               "; need another node of [0, ", n, "), or -1 for a root");
    children[p[i] < 0 ? n : p[i]].push_back(i);
  }
  // Entry and exit times of a depth-first walk: kv is an ancestor of q if q is entered while kv is open.
  std::vector<int64_t> in(n, -1), out(n, -1), path{n};
  std::vector<size_t> next(n + 1);
  int64_t time = 0;
  while (!path.empty()) {
    const int64_t v = path.back();
    if (next[v] < children[v].size()) {
      path.push_back(children[v][next[v]++]);
      in[path.back()] = time++;
    } else {
      if (v < n) out[v] = time;
      path.pop_back();
    }
  }
  WEFT_CHECK(time == n, "attention::tree: the parents of ", n - time,
             " nodes form a cycle; need a path from each to a root (-1)");
  return [in = integers(in, {n}), out = integers(out, {n})](Index, Index, Index q, Index kv) {
    return (in[kv] <= in[q]) & (in[q] < out[kv]);
  };
}

MaskMod graph(const Tensor& adjacency, Loc loc) {
  LineScope here(loc);
  WEFT_CHECK(adjacency.defined() && (adjacency.dtype() == kBool || is_integral(adjacency.dtype())) &&
                 adjacency.dim() >= 2 && adjacency.dim() <= 4,
             "attention::graph: adjacency is ", adjacency.defined() ? str_cat(adjacency.type()) : "undefined",
             "; need bool or integers [S, S], [B, S, S] or [B, H, S, S]");
  return [adjacency](Index b, Index h, Index q, Index kv) {
    Tensor t = row_of(adjacency, 2, b);
    if (t.dim() == 3) t = t[h];
    t = t[q][kv];
    return t.dtype() == kBool ? t : t != 0;
  };
}

MaskMod transfusion(const Tensor& spans, Loc loc) {
  LineScope here(loc);
  check_table("attention::transfusion", "spans", spans, 2, 3, "[N, 2] or [B, N, 2]");
  WEFT_CHECK(spans.shape().back() == 2, "attention::transfusion: spans is ", spans.type(),
             "; need [N, 2] or [B, N, 2]: begin and end");
  const std::vector<int64_t> s = spans.to_vector<int64_t>();
  const int64_t batch = spans.dim() == 3 ? spans.size(0) : 1, n = spans.size(-2);
  int64_t last = 0;
  for (size_t i = 0; i < s.size(); i += 2) {
    WEFT_CHECK(s[i] >= 0 && s[i + 1] >= s[i], "attention::transfusion: span ", i / 2 % n, " is [", s[i], ", ", s[i + 1],
               "); need 0 <= begin <= end");
    last = std::max(last, s[i + 1]);
  }
  WEFT_CHECK_AS(kOutOfRange, saturating_mul(batch, saturating_add(last, 1)) < kMostPositions,
                "attention::transfusion: spans end at ", last, " in ", batch,
                " entries; need less than 2^31 positions in all");
  // The span of each position, from 1 on; positions after all spans share the last entry.
  std::vector<int64_t> id(batch * (last + 1));
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t i = 0; i < n; ++i) {
      const int64_t begin = s[(b * n + i) * 2], end = s[(b * n + i) * 2 + 1];
      for (int64_t t = begin; t < end; ++t) {
        WEFT_CHECK(!id[b * (last + 1) + t], "attention::transfusion: spans ", id[b * (last + 1) + t] - 1, " and ", i,
                   " both hold position ", t, "; need spans that do not overlap");
        id[b * (last + 1) + t] = i + 1;
      }
    }
  const Tensor table = spans.dim() == 3 ? integers(id, {batch, last + 1}) : integers(id, {last + 1});
  return [table, last](Index b, Index, Index q, Index kv) {
    const Tensor row = row_of(table, 1, b), of_q = row[minimum(q, last)];
    return (q >= kv) | ((of_q > 0) & (of_q == row[minimum(kv, last)]));
  };
}

MaskMod block_diffusion(int64_t block, int64_t n, Loc loc) {
  LineScope here(loc);
  WEFT_CHECK(block >= 1 && n >= 1, "attention::block_diffusion: block is ", block, " and n is ", n,
             "; need 1 or more of each");
  return [block, n](Index, Index, Index q, Index kv) {
    const Tensor q_clean = q >= n, kv_clean = kv >= n;
    const Tensor of_q = floor_divide(where(q_clean, q - n, q), block),
                 of_kv = floor_divide(where(kv_clean, kv - n, kv), block);
    return ((of_q == of_kv) & (q_clean == kv_clean)) | (kv_clean & (of_q > of_kv));
  };
}

MaskMod dflash(const Tensor& anchors, int64_t block, int64_t context, Loc loc) {
  LineScope here(loc);
  check_table("attention::dflash", "anchors", anchors, 1, 2, "[N] or [B, N]");
  WEFT_CHECK(block >= 1 && context >= 0, "attention::dflash: block is ", block, " and context is ", context,
             "; need blocks of 1 or more tokens and a context of 0 or more");
  return [anchors, block, context](Index b, Index, Index q, Index kv) {
    const Tensor of_q = floor_divide(q, block), anchor = row_of(anchors, 1, b)[of_q];
    const Tensor before = kv < minimum(cast(anchor, kInt64), context);
    return before | ((anchor >= 0) & (kv >= context) & (floor_divide(kv - context, block) == of_q));
  };
}

MaskMod multi_token(int64_t n, const Tensor& lengths, Loc loc) {
  LineScope here(loc);
  WEFT_CHECK(n >= 1, "attention::multi_token: n is ", n, "; need 1 or more tokens");
  if (lengths.defined()) check_table("attention::multi_token", "lengths", lengths, 1, 1, "[B]");
  return [n, lengths](Index b, Index, Index q, Index kv) {
    const Tensor seen = ((kv < n) & (q >= kv)) | ((kv >= n) & (remainder(kv, n) == q));
    if (!lengths.defined()) return seen;
    return seen & (q < lengths[b]) & (remainder(kv, n) < lengths[b]);
  };
}

MaskMod flamingo(const Tensor& intervals, int64_t tokens_per_image, Loc loc) {
  LineScope here(loc);
  check_table("attention::flamingo", "intervals", intervals, 2, 3, "[N, 2] or [B, N, 2]");
  WEFT_CHECK(intervals.shape().back() == 2 && tokens_per_image >= 1, "attention::flamingo: intervals is ",
             intervals.type(), " for ", tokens_per_image,
             " tokens an image; need [N, 2] or [B, N, 2] and 1 or more tokens");
  // The table is stored by columns, so that a block of keys is a contiguous range of each column.
  const std::vector<int64_t> v = intervals.to_vector<int64_t>();
  const int64_t batch = intervals.dim() == 3 ? intervals.size(0) : 1, n = intervals.size(-2);
  std::vector<int64_t> lo(batch * n), hi(batch * n);
  for (int64_t i = 0; i < batch * n; ++i) {
    lo[i] = v[2 * i];
    hi[i] = v[2 * i + 1];
  }
  const Shape shape = intervals.dim() == 3 ? Shape{batch, n} : Shape{n};
  return [lo = integers(lo, shape), hi = integers(hi, shape), tokens_per_image](Index b, Index, Index q, Index kv) {
    const Tensor image = floor_divide(kv, tokens_per_image);
    return (q >= row_of(lo, 1, b)[image]) & (q < row_of(hi, 1, b)[image]);
  };
}

MaskMod paged(const Tensor& page_table, int64_t page_size, MaskMod inner, const Tensor& lengths, Loc loc) {
  LineScope here(loc);
  check_table("attention::paged", "page_table", page_table, 2, 2, "[B, pages]");
  WEFT_CHECK(page_size >= 1, "attention::paged: page_size is ", page_size, "; need 1 or more tokens");
  if (lengths.defined()) check_table("attention::paged", "lengths", lengths, 1, 1, "[B]");
  return [page_table, page_size, inner, lengths](Index b, Index h, Index q, Index kv) {
    const Tensor page = page_table[b][floor_divide(kv, page_size)];
    const Tensor logical = cast(page, kInt64) * page_size + remainder(kv, page_size);
    Tensor live = page >= 0;
    if (lengths.defined()) live = live & (logical < lengths[b]);
    return live & inner(b, h, q, Index(maximum(logical, 0)));
  };
}

MaskMod per_head(std::vector<MaskMod> masks, Loc loc) {
  LineScope here(loc);
  WEFT_CHECK(!masks.empty(),
             "attention::per_head: no masks; need one for each head, as in per_head({causal(), sliding_window(64)})");
  return [masks](Index b, Index h, Index q, Index kv) {
    Tensor any;
    for (size_t i = 0; i < masks.size(); ++i) {
      const Tensor one = (h == static_cast<int64_t>(i)) & masks[i](b, h, q, kv);
      any = i ? any | one : one;
    }
    return any;
  };
}

}  // namespace weft::attention
