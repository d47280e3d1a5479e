#include "distributed/placement/rule.h"

#include <algorithm>
#include <cmath>

#include "ops/attention/record.h"
#include "ops/core/core.h"
#include "ops/core/products/exact.h"

namespace weft::dist {
namespace {

// The factor of a dim that consists of one factor, or -1.
int only_factor(const DimFactors& tensor, int64_t dim) {
  const auto& f = tensor[dim];
  return f.size() == 1 ? f[0] : -1;
}

// Allows splits of positions that are looked up or written: a dim map calls these factors whole, but
// propagate/local_op.cc can split them.
void allow_indexed(const Node& n, Rule& r) {
  auto allow = [&](int f) {
    if (f >= 0) r.splittable[f] = true;
  };
  const bool select = n.op->is(kPicks);
  const bool add = n.op->is(kAddsAtIndex);
  if (!select && !add) return;
  const int64_t dim = indexed_dim(n);
  allow(only_factor(r.map.in[0], dim));
  if (!add) return;
  allow(only_factor(r.map.in[1], dim));
  r.in_terms = true;
}

int named(const DimMap& map, std::string_view name) {
  for (size_t f = 0; f < map.factors.size(); ++f)
    if (map.factors[f].name == name) return static_cast<int>(f);
  return -1;
}

// Routing ops have tokens and rows; grouped products have rows and experts.
void allow_rows(const Node& n, Rule& r) {
  const bool moves = n.op->is(kExpertRows) || n.op == &exact_row_dots_op;
  if (!moves && n.op != &grouped_dot_op && n.op != &exact_grouped_dot_op) return;
  r.rows = named(r.map, "r");
  if (moves) {
    r.tokens = named(r.map, "t");
    r.splittable[r.tokens] = true;
  } else {
    r.experts = named(r.map, "e");
    r.offsets = 2;
    r.splittable[r.experts] = true;
  }
}

}  // namespace

Rule rule_of(const Graph& g, const Node& n) {
  std::vector<TensorType> in;
  for (Value v : n.inputs) in.push_back(g.type(v));
  Rule r;
  auto whole_dims = [&](const TensorType& t) {
    DimFactors dims;
    for (int64_t extent : t.shape) {
      dims.push_back({static_cast<int>(r.map.factors.size())});
      r.map.factors.push_back({"w", FactorKind::kWhole, extent});
    }
    return dims;
  };
  if (n.op->dims) {
    r.map = n.op->dims(n.attrs, in, {n.outputs.data(), n.outputs.size()});
    while (r.map.in.size() < in.size())
      r.map.in.push_back(whole_dims(in[r.map.in.size()]));  // operands of a barrier that the barrier does not read
  } else {
    for (const TensorType& t : in) r.map.in.push_back(whole_dims(t));
    for (const TensorType& t : n.outputs) r.map.out.push_back(whole_dims(t));
  }
  for (const Factor& f : r.map.factors) {
    r.splittable.push_back(f.size > 1 && (f.kind == FactorKind::kPass || f.kind == FactorKind::kSum ||
                                          f.kind == FactorKind::kMax || f.kind == FactorKind::kMin));
    r.reduces.push_back(f.kind == FactorKind::kMax   ? ReduceOp::kMax
                        : f.kind == FactorKind::kMin ? ReduceOp::kMin
                                                     : ReduceOp::kSum);
  }
  allow_indexed(n, r);
  allow_rows(n, r);
  r.linear = r.map.linear ? n.op->linear : 0;
  r.jointly = n.op->jointly;
  return r;
}

size_t factor(const Rule& rule, std::string_view name) {
  const int f = named(rule.map, name);
  WEFT_BUG_IF(f < 0, "rule: no factor '", name, "' in ", rule.map.to_string());
  return static_cast<size_t>(f);
}

FactorSplit whole(const Rule& rule) {
  FactorSplit s;
  for (const Factor& f : rule.map.factors) s.push_back(one_segment(f.size));
  return s;
}

FactorSplit split_of(const Mesh& mesh, const Rule& rule, const DimFactors& tensor, const Spec& spec) {
  FactorSplit s = whole(rule);
  for (size_t d = 0; d < tensor.size() && d < spec.dims.size(); ++d) {
    if (tensor[d].empty() || dist::whole(spec.dims[d])) continue;
    if (is_rows(spec.dims[d])) {
      const auto f = static_cast<size_t>(tensor[d][0]);
      if (static_cast<int>(f) == rule.rows || rule.splittable[f]) s[f] = spec.dims[d];
      continue;
    }
    std::vector<int64_t> sizes;
    for (int f : tensor[d]) sizes.push_back(rule.map.factors[f].size);
    const auto parts = cut(mesh, spec.dims[d], sizes);
    if (!parts) continue;
    for (size_t k = 0; k < sizes.size(); ++k) {
      const auto f = static_cast<size_t>(tensor[d][k]);
      if (rule.splittable[f]) s[f] = (*parts)[k];
    }
  }
  return s;
}

static Spec spec_of(const Mesh& mesh, const Rule& rule, const DimFactors& tensor, const FactorSplit& split) {
  Spec s;
  for (const std::vector<int>& dim : tensor) {
    std::vector<DimSpec> parts;
    for (int f : dim) parts.push_back(split[f]);
    s.dims.push_back(parts.empty() ? one_segment(1) : parts.size() == 1 ? parts[0] : join(mesh, parts));
  }
  return s;
}

Spec operand_spec(const Mesh& mesh, const Rule& rule, size_t i, const FactorSplit& split) {
  Spec s = spec_of(mesh, rule, rule.map.in[i], split);
  if (rule.in_terms && i == 0) s.pending = result_spec(mesh, rule, 0, split).pending;
  if (static_cast<int>(i) == rule.offsets)
    for (int8_t a : axes_of(split[rule.rows])) s.add_pending(a, ReduceOp::kSum);
  return s;
}

Spec result_spec(const Mesh& mesh, const Rule& rule, size_t i, const FactorSplit& split) {
  Spec s = spec_of(mesh, rule, rule.map.out[i], split);
  for (size_t f = 0; f < split.size(); ++f) {
    bool kept = false;
    for (const auto& dim : rule.map.out[i])
      for (int k : dim) kept |= k == static_cast<int>(f);
    // Rows are split because their tokens are. A rank that has all rows of its experts has nothing left to add.
    if ((static_cast<int>(f) == rule.rows && rule.tokens >= 0) || static_cast<int>(f) == rule.experts) continue;
    if (static_cast<int>(f) == rule.tokens)
      for (const auto& dim : rule.map.out[i])
        for (int k : dim) kept |= k == rule.rows;
    if (kept) continue;
    if (static_cast<int>(f) == rule.rows && rule.experts >= 0) {
      const Axes experts = axes_of(split[rule.experts]);
      for (int8_t a : axes_of(split[f]))
        if (!experts.contains(a)) s.add_pending(a, ReduceOp::kSum);
      continue;
    }
    for (int8_t a : axes_of(split[f])) s.add_pending(a, rule.reduces[f]);
  }
  return s;
}

bool complete(const Mesh& mesh, const Rule& rule, double room, FactorSplit& split) {
  if (rule.rows < 0) return true;
  DimSpec& rows = split[rule.rows];
  const int64_t extent = rule.map.factors[rule.rows].size;
  if (rule.tokens >= 0) {
    const Axes axes = axes_of(split[rule.tokens]);
    if (extent % mesh.parts(axes) != 0) return false;
    rows = axes.empty() ? one_segment(extent) : one_segment(extent, axes, SegLayout::kByToken);
    return true;
  }
  const Axes axes = axes_of(rows);
  DimSpec& owners = split[rule.experts];
  // Rows by expert stay with their experts; for the gradient of a weight nothing else requires it.
  if (whole(owners) && is_rows(rows) && rows[0].layout == SegLayout::kByExpert)
    owners = one_segment(rule.map.factors[rule.experts].size, rows[0].experts);
  const Axes experts = axes_of(owners);
  for (size_t f = 0; f < split.size(); ++f)  // rows do not move, so no other factor may use their axes
    if (static_cast<int>(f) != rule.rows && static_cast<int>(f) != rule.experts)
      for (int8_t a : axes_of(split[f]))
        if (axes.contains(a)) return false;
  if (experts.empty()) {
    if (!axes.empty()) rows = one_segment(extent, axes, SegLayout::kByToken);
    return true;
  }
  for (int8_t a : experts)
    if (!axes.contains(a)) return false;
  const int64_t all = extent / mesh.parts(axes) * mesh.parts(experts);
  const auto wanted =
      static_cast<int64_t>(std::ceil(room * static_cast<double>(all) / static_cast<double>(mesh.parts(experts))));
  rows = one_segment(extent, axes, SegLayout::kByExpert);
  rows[0].experts = experts;
  rows[0].room = room == 0 ? all : std::min(all, wanted);
  return true;
}

void merge(const Mesh& mesh, const FactorSplit& more, FactorSplit& split) {
  SmallVec<int8_t, 8> used;
  for (const DimSpec& d : split)
    for (int8_t a : axes_of(d)) used.push_back(a);
  for (size_t f = 0; f < split.size(); ++f) {
    if (!whole(split[f]) || whole(more[f])) continue;
    if (is_rows(more[f])) {  // rows have the axes of tokens, or include the axes of experts
      split[f] = more[f];
      continue;
    }
    DimSpec now;
    bool any = false;
    for (Seg s : more[f]) {
      Axes keep;
      for (int8_t a : s.axes) {
        if (used.contains(a)) break;
        keep.push_back(a);
      }
      if (keep.size() < s.axes.size() && s.layout != SegLayout::kBlock) keep = {};
      s.axes = keep;
      if (keep.empty()) s.layout = SegLayout::kBlock;
      any |= !keep.empty();
      now.push_back(s);
    }
    if (!any) continue;
    for (int8_t a : axes_of(now)) used.push_back(a);
    split[f] = canonical(mesh, now);
  }
}

}  // namespace weft::dist
