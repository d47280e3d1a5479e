#include "distributed/testing/rule_check.h"

#include <algorithm>
#include <set>

#include "distributed/testing/sharded_call.h"
#include "framework/dispatch/dispatch.h"
#include "ops/core/core.h"

namespace weft::testing {

using dist::DimSpec;
using dist::FactorSplit;
using dist::Mesh;
using dist::Rule;
using dist::SegLayout;
using dist::Spec;
using weft::internal::Sample;

namespace {

// Whether a factor is tokens, rows or experts. These are split together, in layouts that only steps of several ops
// have: see distributed/launch:compile_test and distributed:moe_ep_test.
bool of_routing(const Rule& rule, size_t factor) {
  const auto f = static_cast<int>(factor);
  return f == rule.tokens || f == rule.rows || f == rule.experts;
}

constexpr size_t kMostErrors = 6;  // limit of errors for one call
constexpr uint64_t kDraws = 24;    // draws of operands: in a single draw, a few elements may agree by chance

// ---- splits that a rule allows ----

// Sets of operands, as bits, that may be terms of a sum together.
std::vector<uint32_t> pending_sets(const RuleCase& c, const Rule& rule) {
  uint32_t can = 0;
  for (size_t i = 0; i < c.in.size() && i < 32; ++i) {
    const DType t = c.in[i].dtype();
    const bool terms = t == kFloat64 || t == kInt64 || t == kInt32;
    if (!(rule.linear >> i & 1)) continue;
    if (terms) can |= 1u << i;
    if (!terms && rule.jointly) return {};
  }
  std::vector<uint32_t> sets;
  if (rule.jointly) {
    if (can) sets.push_back(can);
    return sets;
  }
  for (uint32_t i = 0; i < 32; ++i)
    if (can >> i & 1) sets.push_back(1u << i);
  return sets;
}

SplitCall call_of(const Mesh& mesh, const RuleCase& c, const Rule& rule, const FactorSplit& split, uint32_t pending,
                  int pending_axis) {
  SplitCall call{split, {}, {}};
  for (size_t i = 0; i < c.in.size(); ++i) {
    Spec s = dist::operand_spec(mesh, rule, i, split);
    if (i < 32 && pending >> i & 1) s.add_pending(pending_axis, ReduceOp::kSum);
    call.in.push_back(s);
  }
  for (size_t i = 0; i < c.out.size(); ++i) {
    Spec s = dist::result_spec(mesh, rule, i, split);
    if (pending) s.add_pending(pending_axis, ReduceOp::kSum);
    call.out.push_back(s);
  }
  return call;
}

std::string split_text(const Mesh& mesh, const SplitCall& call) {
  std::string s;
  for (const Spec& spec : call.in) s += to_string(mesh, spec) + " ";
  s += "->";
  for (const Spec& spec : call.out) s += " " + to_string(mesh, spec);
  return s;
}

// ---- wrong ----

class Wrong {
 public:
  Wrong(const OpDef& op, const Sample& sample)
      : c_(rule_case(op, sample, 7)), rule_(dist::rule_of(c_.graph, c_.call())) {}

  WrongReport run() {
    const Mesh two({{"x", 2}}), three({{"x", 3}}), both({{"x", 2}, {"y", 2}}), uneven({{"x", 3}, {"y", 2}});
    for (const Mesh* m : {&two, &three}) {
      for (const FactorSplit& s : singles(*m, 0)) try_split(*m, s, 0, 0);
      for (uint32_t set : pending_sets(c_, rule_)) try_split(*m, dist::whole(rule_), set, 0);
    }
    for (const Mesh* m : {&both, &uneven}) {
      const std::vector<FactorSplit> major = singles(*m, 0), minor = singles(*m, 1);
      for (const FactorSplit& s : minor)
        for (uint32_t set : pending_sets(c_, rule_)) try_split(*m, s, set, 0);
      for (const FactorSplit& a : major)
        for (const FactorSplit& b : minor) try_split(*m, joined(a, b), 0, 0);
      for (const FactorSplit& s : nested(*m)) try_split(*m, s, 0, 0);
    }
    return std::move(report_);
  }

 private:
  // Splits each factor over one axis: in blocks, head to tail, in any order.
  std::vector<FactorSplit> singles(const Mesh& mesh, int8_t axis) const {
    std::vector<FactorSplit> out;
    dist::Axes axes;
    axes.push_back(axis);
    for (size_t f = 0; f < rule_.splittable.size(); ++f) {
      if (!rule_.splittable[f] || of_routing(rule_, f)) continue;
      const int64_t size = rule_.map.factors[f].size;
      for (SegLayout layout : {SegLayout::kBlock, SegLayout::kHeadTail, SegLayout::kTable}) {
        const dist::Seg seg{size, axes, layout};
        if (layout != SegLayout::kBlock && size % seg.pieces(mesh.axis_size(axis)) != 0) continue;
        FactorSplit s = dist::whole(rule_);
        s[f].clear();
        s[f].push_back(seg);
        out.push_back(s);
      }
    }
    return out;
  }

  // Combines two splits. If both split one factor in blocks, the second splits the parts of the first. There is only
  // one table of positions.
  FactorSplit joined(const FactorSplit& a, const FactorSplit& b) const {
    FactorSplit s = a;
    auto listed = [](const FactorSplit& split) {
      return std::any_of(split.begin(), split.end(), [](const DimSpec& d) { return d[0].layout == SegLayout::kTable; });
    };
    if (listed(a) && listed(b)) return s;
    for (size_t f = 0; f < s.size(); ++f) {
      if (dist::whole(b[f])) continue;
      if (dist::whole(s[f])) {
        s[f] = b[f];
      } else if (s[f][0].layout == SegLayout::kBlock && b[f][0].layout == SegLayout::kBlock) {
        for (int8_t x : b[f][0].axes) s[f][0].axes.push_back(x);
      }
    }
    return s;
  }

  // Splits a factor that is itself (major minor), as in a dim flattened from two, with both parts split.
  std::vector<FactorSplit> nested(const Mesh& mesh) const {
    std::vector<FactorSplit> out;
    for (size_t f = 0; f < rule_.splittable.size(); ++f) {
      const int64_t size = rule_.map.factors[f].size;
      if (!rule_.splittable[f] || of_routing(rule_, f)) continue;
      for (int64_t major : {2, 3, 4}) {
        if (size % major != 0 || size / major < 2) continue;
        DimSpec d;
        d.push_back({major, dist::axes_of(dist::one_segment(major, mesh.axes("x"))), SegLayout::kBlock});
        d.push_back({size / major, mesh.axes("y"), SegLayout::kBlock});
        FactorSplit s = dist::whole(rule_);
        s[f] = dist::canonical(mesh, d);
        out.push_back(s);
        break;
      }
    }
    return out;
  }

  void try_split(const Mesh& mesh, const FactorSplit& split, uint32_t pending, int axis) {
    const SplitCall call = call_of(mesh, c_, rule_, split, pending, axis);
    ++report_.tried;
    std::string why;
    try {
      const auto results = run_on_all(mesh, c_, rule_, call);
      bool terms = pending != 0;
      for (const Spec& s : call.in) terms |= !s.pending.empty();
      const OpDef& op = *c_.call().op;
      const bool exact = !terms && (op.is(kView) || op.is(kIndexing) || op.is(kRandom));
      for (size_t o = 0; o < c_.out.size() && why.empty(); ++o) {
        std::vector<Tensor> parts;
        for (const auto& r : results) parts.push_back(r[o]);
        why = difference(mesh, call.out[o], parts, c_.out[o], exact);
        if (!why.empty()) why = str_cat("result ", o, ", ", why);
      }
    } catch (const Error& e) {
      why = e.what();
    }
    if (!why.empty() && report_.wrong.size() < kMostErrors)
      report_.wrong.push_back(str_cat(describe(c_), "\n    ", split_text(mesh, call), "\n    ", why));
  }

  RuleCase c_;
  Rule rule_;
  WrongReport report_;
};

// ---- missing ----

// How a tensor is split over the single axis of two ranks.
enum : int { kWhole = -1, kSum = -2, kMax = -3, kMin = -4, kOther = -5 };  // else the number of the split dim
using Places = std::vector<int>;

int place_of(const Spec& s) {
  if (!s.pending.empty())
    return s.pending[0].op == ReduceOp::kSum ? kSum : s.pending[0].op == ReduceOp::kMax ? kMax : kMin;
  for (size_t d = 0; d < s.dims.size(); ++d) {
    if (dist::whole(s.dims[d])) continue;
    return s.dims[d].size() == 1 && s.dims[d][0].layout == SegLayout::kBlock ? static_cast<int>(d) : kOther;
  }
  return kWhole;
}

Spec spec_at(const Mesh& mesh, const Shape& shape, int place) {
  Spec s = Spec::replicated(shape);
  if (place >= 0) s.dims[static_cast<size_t>(place)] = dist::one_segment(shape[place], mesh.axes("x"));
  if (place <= kSum) s.add_pending(0, place == kSum ? ReduceOp::kSum : place == kMax ? ReduceOp::kMax : ReduceOp::kMin);
  return s;
}

// Whether `to` follows from `from` without communication: a whole tensor becomes a part or terms.
bool follows(int from, int to) { return from == to || from == kWhole; }

const char* text_of(int place) {
  static constexpr const char* kNames[] = {"whole", "sum", "max", "min", "other"};
  static constexpr const char* kDims[] = {"split 0", "split 1", "split 2", "split 3", "split 4", "split 5"};
  return place >= 0 ? kDims[std::min(place, 5)] : kNames[-1 - place];
}
std::string text_of(const Places& in, const Places& out) {
  std::string s;
  for (int p : in) s += str_cat(s.empty() ? "" : ", ", text_of(p));
  s += " ->";
  for (int p : out) s += str_cat(" ", text_of(p));
  return s;
}

class Missing {
 public:
  Missing(const OpDef& op, const Sample& sample) : mesh_({{"x", 2}}) {
    for (uint64_t seed = 11; seed < 11 + kDraws; ++seed) cases_.push_back(rule_case(op, sample, seed));
    const Rule rule = dist::rule_of(first().graph, first().call());
    auto say = [&](const SplitCall& call) {
      Said s;
      for (const Spec& spec : call.in) s.in.push_back(place_of(spec));
      for (const Spec& spec : call.out) s.out.push_back(place_of(spec));
      said_.push_back(s);
    };
    say(call_of(mesh_, first(), rule, dist::whole(rule), 0, 0));
    for (uint32_t set : pending_sets(first(), rule)) say(call_of(mesh_, first(), rule, dist::whole(rule), set, 0));
    for (size_t f = 0; f < rule.splittable.size(); ++f) {
      const int64_t size = rule.map.factors[f].size;
      if (!rule.splittable[f] || of_routing(rule, f) || size % 2 != 0) continue;
      FactorSplit s = dist::whole(rule);
      s[f] = dist::one_segment(size, mesh_.axes("x"));
      say(call_of(mesh_, first(), rule, s, 0, 0));
    }
  }

  MissingReport run() {
    std::vector<Places> choices;
    for (size_t i = 0; i < first().in.size(); ++i) {
      const Tensor& t = first().in[i];
      Places p{kWhole};
      for (int d = 0; d < t.dim(); ++d)
        if (t.size(d) % 2 == 0 && t.size(d) > 0) p.push_back(d);
      if (t.dtype() == kFloat64 && !excused(first(), i)) p.push_back(kSum);
      choices.push_back(p);
    }
    each(choices, [&](const Places& in) { try_places(in); });
    return std::move(report_);
  }

 private:
  struct Said {
    Places in, out;
  };
  const RuleCase& first() const { return cases_[0]; }

  template <class F>
  static void each(const std::vector<Places>& choices, F&& f) {
    std::vector<size_t> at(choices.size(), 0);
    for (const Places& c : choices)
      if (c.empty()) return;
    while (true) {
      Places now;
      for (size_t i = 0; i < at.size(); ++i) now.push_back(choices[i][at[i]]);
      f(now);
      size_t i = 0;
      for (; i < at.size(); ++i) {
        if (++at[i] < choices[i].size()) break;
        at[i] = 0;
      }
      if (i == at.size()) return;
    }
  }

  // The candidates for attributes that contain the result's shape.
  std::vector<Attrs> local_attrs() const {
    const Node& n = first().call();
    const char* key = n.attrs.has("shape") ? "shape" : n.op == &dynamic_slice_op ? "sizes" : nullptr;
    if (n.op == &slice_op) return {};
    if (!key) return {n.attrs};
    std::vector<Attrs> out{n.attrs};
    const Shape& whole = n.attrs.ints(key);
    for (int d = 0; d < whole.size(); ++d) {
      if (whole[d] % 2 != 0 || whole[d] == 0) continue;
      Shape s = whole;
      s[d] /= 2;
      out.push_back(n.attrs.with(key, s));
    }
    return out;
  }
  // The attributes of a local slice: it keeps its bounds in the dims that it cuts, and takes all of other dims.
  Attrs slice_attrs(const Shape& local) const {
    const Node& n = first().call();
    Shape end = n.attrs.ints("end");
    for (int d = 0; d < end.size(); ++d)
      if (n.outputs[0].shape[d] == first().in[0].size(d)) end[d] = local[d];
    return n.attrs.with("end", end);
  }

  void try_places(const Places& in) {
    std::vector<std::vector<std::set<int>>> valid(cases_.size(), std::vector<std::set<int>>(first().out.size()));
    for (size_t k = 0; k < cases_.size(); ++k) {
      const RuleCase& c = cases_[k];
      std::vector<std::vector<Tensor>> parts;
      for (int r = 0; r < 2; ++r) {
        parts.emplace_back();
        for (size_t i = 0; i < c.in.size(); ++i)
          parts.back().push_back(part_of(mesh_, spec_at(mesh_, c.in[i].shape(), in[i]), c.in[i], r, 90 + i + 100 * k));
      }
      std::vector<Attrs> tries = local_attrs();
      if (c.call().op == &slice_op) tries.push_back(slice_attrs(parts[0][0].shape()));
      for (const Attrs& attrs : tries) {
        std::vector<std::vector<Tensor>> results;
        try {
          for (const auto& own : parts) {
            SmallVec<const Tensor*, 8> pointers;
            for (const Tensor& t : own) pointers.push_back(&t);
            results.push_back(dispatch_multi(*c.call().op, TensorPtrs(pointers), attrs));
          }
        } catch (const Error&) {
          continue;
        }
        for (size_t o = 0; o < c.out.size(); ++o) look(c.out[o], results, o, valid[k][o]);
      }
    }
    std::vector<Places> both;
    for (size_t o = 0; o < first().out.size(); ++o) {
      Places p;
      for (int place : valid[0][o])
        if (!constant(o) &&
            std::all_of(valid.begin(), valid.end(), [&](const auto& v) { return v[o].count(place) > 0; }))
          p.push_back(place);
      if (!p.empty()) ++report_.valid;
      if (constant(o)) p = {kOther};
      both.push_back(p);
    }
    each(both, [&](const Places& out) {
      for (const Said& s : said_)
        if (derives(s, in, out)) return;
      if (std::all_of(out.begin(), out.end(), [](int p) { return p == kOther; })) return;
      if (report_.missing.size() < kMostErrors)
        report_.missing.push_back(str_cat(describe(first()), "\n    ", text_of(in, out)));
    });
  }

  // Whether a result does not depend on the operands' values, and so tests nothing.
  bool constant(size_t o) const {
    if (first().in.empty()) return false;
    for (const RuleCase& c : cases_)
      if (!difference(first().out[o], c.out[o], true).empty()) return false;
    return true;
  }

  static bool derives(const Said& s, const Places& in, const Places& out) {
    for (size_t i = 0; i < in.size(); ++i)
      if (!follows(in[i], s.in[i])) return false;
    for (size_t o = 0; o < out.size(); ++o)
      if (out[o] != kOther && !follows(s.out[o], out[o])) return false;
    return true;
  }

  void look(const Tensor& whole, const std::vector<std::vector<Tensor>>& results, size_t o,
            std::set<int>& valid) const {
    std::vector<Tensor> parts;
    for (const auto& r : results) parts.push_back(r[o]);
    Places places{kWhole, kMax, kMin};
    if (whole.dtype() != kBool) places.push_back(kSum);
    for (int d = 0; d < whole.dim(); ++d)
      if (whole.size(d) % 2 == 0 && whole.size(d) > 0) places.push_back(d);
    for (int p : places)
      if (difference(mesh_, spec_at(mesh_, whole.shape(), p), parts, whole, false).empty()) valid.insert(p);
  }

  Mesh mesh_;
  std::vector<RuleCase> cases_;
  std::vector<Said> said_;
  MissingReport report_;
};

}  // namespace

WrongReport wrong_splits(const OpDef& op, const Sample& sample) { return Wrong(op, sample).run(); }
MissingReport missing_splits(const OpDef& op, const Sample& sample) { return Missing(op, sample).run(); }

}  // namespace weft::testing
