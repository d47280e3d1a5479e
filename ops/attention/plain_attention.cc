// Attention and its derivative in primitives, with the whole scores in memory: the reference of the kernels, the
// implementation for f64, and the way to second derivatives.
#include <limits>

#include "framework/autodiff/grad.h"
#include "framework/dispatch/dispatch.h"
#include "ops/attention/mods/map_mod.h"
#include "ops/attention/mods/score_reads.h"
#include "ops/attention/record.h"
#include "ops/core/core.h"
#include "ops/core/record_parts.h"

namespace weft {

using namespace internal;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

/// Scores and the values derived from them, all in memory, in f32 (f64 for f64).
struct Plain {
  AttentionOperands at;
  DType wide;
  bool all_wide;
  int64_t b, hq, hkv, sq, skv, group;
  double factor;  // softmax_scale
  Tensor q, k, v, raw, scores, seen, keep;
  TableReads reads;

  Plain(const Attrs& attrs, std::span<const Tensor> in, bool derivative) : at(attrs), factor(softmax_scale(attrs)) {
    wide = wide_of(in[0].dtype());
    all_wide = attrs.b("wide", false);
    b = in[0].size(0);
    hq = in[0].size(1);
    hkv = in[1].size(1);
    sq = in[0].size(2);
    group = hq / hkv;
    std::vector<Tensor> kv{in[1], in[2]};
    if (at.pages >= 0) kv = gathered_pages(in[static_cast<size_t>(at.pages)], in[1], in[2]);
    skv = kv[0].size(2);
    q = cast(in[0], wide);
    k = heads(cast(kv[0], wide));
    v = heads(cast(kv[1], wide));
    raw = matmul(q, transpose(k, -1, -2));
    if (factor == 1) raw = raw * attrs.f("scale");
    const std::vector<Tensor> where_at = positions();
    std::vector<IndexRead> indices;
    scores = raw;
    if (derivative) {
      EnableGrad record;
      scores = raw = own_tape(raw);
      reads.fixed = at.fixed_tables;
      if (const Graph* mod = graph_of(attrs, "score")) scores = modified(*mod, in, where_at, &reads, nullptr);
    } else if (const Graph* mod = graph_of(attrs, "score")) {
      scores = modified(*mod, in, where_at, nullptr, &indices);
    }
    if (const Graph* mask = graph_of(attrs, "mask")) {
      std::vector<Tensor> args = where_at;
      for (int i = 0; i < at.mask_tables; ++i) args.push_back(in[static_cast<size_t>(at.mask_first + i)]);
      std::vector<IndexRead> of_mask;
      seen = broadcast_to(map_mod(*mask, 4, args, nullptr, &of_mask), scores.shape());
      if (!raw.is_traced()) check_reads("mask_mod", *mask, of_mask, scores.shape(), Tensor());
    }
    // While capturing, the values are unknown: such a score stays NaN.
    if (!raw.is_traced() && !indices.empty())
      check_reads("score_mod", *graph_of(attrs, "score"), indices, scores.shape(), seen);
    if (at.dropout >= 0) {
      const Shape whole = at.places >= 0 ? attrs.ints("dropout_extents") : raw.shape();
      Tensor bits =
          dispatch(random_bits_op, {&in[static_cast<size_t>(at.dropout)], &in[static_cast<size_t>(at.dropout) + 1]},
                   {{"shape", whole}, {"op_id", attrs.i("op_id")}});
      for (int d = 0; d < 4 && at.places >= 0; ++d)
        bits = index_select(bits, d, in[static_cast<size_t>(at.places + d)]);
      const Tensor u = mul(cast(shift_right_logical(bits, 8), kFloat32), 0x1p-24);
      keep = where(ge(u, attrs.f("dropout")), 1 / (1 - attrs.f("dropout")), cast(u * 0.0, wide));
    }
  }

  /// The exponents of masked scores over `top`. Equal scores give 0, however large they are.
  Tensor exponents(const Tensor& masked, const Tensor& top) const {
    const Tensor above = masked - where(eq(top, -kInf), 0.0, top);
    return factor == 1 ? above : above * factor;
  }
  Tensor masked(const Tensor& s) const { return seen.defined() ? where(seen, s, -kInf) : s; }
  // [B, Hkv, S, D] expanded to the query heads.
  Tensor heads(const Tensor& t) const {
    Shape s{b, hkv, group, t.size(2), t.size(3)};
    return reshape(broadcast_to(unsqueeze(t, 2), s), {b, hq, t.size(2), t.size(3)});
  }
  // Sums the heads' gradients to [B or 1, Hkv, S, D].
  Tensor grouped(const Tensor& g, const Tensor& like) const {
    Tensor s = sum(reshape(g, {b, hkv, group, g.size(2), g.size(3)}), 2);
    if (like.size(0) != b) s = sum(s, 0, true);
    return cast(s, narrow(like));
  }
  // The dtype of the result for `like`.
  DType narrow(const Tensor& like) const { return all_wide ? wide_of(like.dtype()) : like.dtype(); }

 private:
  std::vector<Tensor> positions() const {
    const TensorOptions i64{.dtype = kInt64};
    return {reshape(arange(b, i64), {b, 1, 1, 1}), reshape(arange(hq, i64), {1, hq, 1, 1}),
            reshape(arange(sq, i64), {1, 1, sq, 1}), reshape(arange(skv, i64), {1, 1, 1, skv})};
  }
  Tensor modified(const Graph& mod, std::span<const Tensor> in, const std::vector<Tensor>& where_at,
                  TableReads* table_reads, std::vector<IndexRead>* indices) const {
    std::vector<Tensor> args{raw};
    args.insert(args.end(), where_at.begin(), where_at.end());
    for (int i = 0; i < at.score_tables; ++i) args.push_back(in[static_cast<size_t>(at.score_first + i)]);
    return broadcast_to(map_mod(mod, 5, args, table_reads, indices), raw.shape());
  }
};

}  // namespace

std::vector<Tensor> internal::gathered_pages(const Tensor& pages, const Tensor& k, const Tensor& v) {
  // The page numbers of masked keys may be anything.
  const Tensor chosen = minimum(maximum(reshape(pages, {-1}), 0), k.size(0) - 1);
  std::vector<Tensor> r;
  for (const Tensor* t : {&k, &v}) {
    const Tensor rows =
        reshape(index_select(*t, 0, chosen), {pages.size(0), pages.size(1), t->size(1), t->size(2), t->size(3)});
    r.push_back(reshape(transpose(rows, 1, 2), {pages.size(0), t->size(1), pages.size(1) * t->size(2), t->size(3)}));
  }
  return r;
}

std::vector<Tensor> internal::plain_attention(const Attrs& attrs, std::span<const Tensor> in) {
  const Plain p(attrs, in, false);
  const Tensor s = p.masked(p.scores);
  Tensor top;
  const Shape rows{p.b, p.hq, p.sq};
  if (p.skv == 0) {
    return {zeros({p.b, p.hq, p.sq, in[2].size(3)}, {.dtype = p.narrow(in[0])}), full(rows, -kInf, {.dtype = p.wide}),
            full(rows, -kInf, {.dtype = p.wide})};
  }
  {
    NoGrad guard;
    top = amax(s, -1, true);
  }
  const Tensor e = exp(p.exponents(s, top)), total = sum(e, -1, true), none = eq(total, 0.0);
  const Tensor divisor = where(none, 1.0, total);
  Tensor prob = e / divisor;
  if (p.keep.defined()) prob = prob * p.keep;
  // The kernel too rounds the probabilities to v's dtype before it multiplies them by v.
  prob = cast(cast(prob, in[2].dtype()), p.wide);
  const Tensor log_sum = where(none, -kInf, log(divisor));
  return {cast(matmul(prob, p.v), p.narrow(in[0])), reshape(log_sum, rows), reshape(top, rows)};
}

std::vector<Tensor> internal::plain_attention_backward(const Attrs& attrs, std::span<const Tensor> in) {
  const Plain p(attrs, in, true);
  const Tensor *rest = &in[static_cast<size_t>(p.at.count)], out = cast(rest[0], p.wide), dout = cast(rest[3], p.wide);
  const Tensor log_sum = unsqueeze(cast(rest[1], p.wide), -1), top = unsqueeze(cast(rest[2], p.wide), -1);
  const Tensor prob = exp(p.exponents(p.masked(p.scores), top) - where(eq(log_sum, -kInf), 0.0, log_sum));
  const Tensor delta = sum(out * dout, -1, true) - unsqueeze(cast(rest[4], p.wide), -1);
  Tensor dprob = matmul(dout, transpose(p.v, -1, -2));
  Tensor dropped = prob;
  if (p.keep.defined()) {
    dprob = dprob * p.keep;
    dropped = prob * p.keep;
  }
  Tensor ds = prob * (dprob - delta);
  if (p.seen.defined()) ds = where(p.seen, ds, 0.0);
  std::vector<Tensor> tables;
  if (graph_of(attrs, "score")) {
    std::vector<Tensor> wrt{p.raw};
    for (const TableRead& r : p.reads.all) wrt.push_back(r.value);
    std::vector<Tensor> d(wrt.size());
    if (p.scores.requires_grad_enabled()) d = grad(p.scores, wrt, {.create_graph = grad_enabled(), .grad_output = ds});
    for (int i = 0; i < p.at.score_tables; ++i) {
      const Tensor& t = in[static_cast<size_t>(p.at.score_first + i)];
      if (!p.at.learned(i, t.dtype())) continue;
      Tensor g = zeros({t.numel()}, {.dtype = wide_of(t.dtype())});
      for (size_t r = 0; r < p.reads.all.size(); ++r)
        if (p.reads.all[r].input == 5 + i && d[r + 1].defined())
          g = index_add(g, 0, reshape(p.reads.all[r].at, {-1}), reshape(d[r + 1], {-1}));
      tables.push_back(cast(reshape(g, t.shape()), p.narrow(t)));
    }
    ds = d[0].defined() ? d[0] : zeros(p.raw.shape(), {.dtype = p.wide});
    if (p.seen.defined()) ds = where(p.seen, ds, 0.0);
  }
  ds = ds * attrs.f("scale");
  std::vector<Tensor> r{cast(matmul(ds, p.k), p.narrow(in[0])), p.grouped(matmul(transpose(ds, -1, -2), p.q), in[1]),
                        p.grouped(matmul(transpose(dropped, -1, -2), dout), in[2])};
  r.insert(r.end(), tables.begin(), tables.end());
  return r;
}

}  // namespace weft
