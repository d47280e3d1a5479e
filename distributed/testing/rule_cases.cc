#include "distributed/testing/rule_cases.h"

#include "distributed/placement/rule.h"
#include "framework/dispatch/dispatch.h"
#include "ops/all_ops.h"
#include "ops/core/core.h"
#include "ops/testing/cases.h"

namespace weft::testing {

using weft::internal::Sample;
using weft::internal::SampleInput;

namespace {

struct Reason {
  std::string_view op;
  const char* reason;
};

// Ops that are tested for wrong placements only, not for missing placements.
constexpr Reason kOnlyWrong[] = {
    {"attention", "parts of the keys are tried in distributed/context_parallel_test"},
    {"attention_backward", "as attention"},
    {"round_to", "whole blocks could be split; the rule keeps the dim of the blocks whole"},
    {"window", "windows that do not overlap could be split; the rule keeps every windowed dim whole"},
};

// Ops without calls to split.
constexpr Reason kNotTried[] = {
    {"grad", "gone before a graph is split"},        {"checkpoint", "gone before a graph is split"},
    {"custom_grad", "gone before a graph is split"}, {"accumulate", "gone before a graph is split"},
    {"loop", "gone before a graph is split"},
};

// Operands whose terms pass by accident, or are deliberately kept from passing.
struct Excuse {
  std::string_view op;
  size_t operand;
  bool (*when)(const RuleCase&);  // null: always
  const char* reason;
};
constexpr Excuse kExcuses[] = {
    {"cast", 0, [](const RuleCase& c) { return !dist::rule_of(c.graph, c.call()).map.linear; },
     "each term would be rounded to fewer digits before they are added"},
    {"debug_print", 0, nullptr, "prints values, not terms"},
    {"barrier", 1, nullptr, "not read: it keeps its placement (decide)"},
    {"linear_cross_entropy_grad", 3, nullptr,
     "the gradients would be terms, the loss not: a rule says one thing of all results"},
    {"dynamic_update_slice", 0, [](const RuleCase& c) { return c.in[0].shape() == c.in[1].shape(); },
     "overwritten whole, so not read"},
};

using In = SampleInput;

In index(const Shape& shape, double below) { return {shape, kInt64, 0, below - 1}; }
Attrs along(int64_t dim) { return {{"dim", dim}}; }

// Elementwise ops: the first sample's operands in a shape that divides, each also as a scalar.
std::vector<Sample> elementwise(const OpDef& op) {
  std::vector<Sample> out;
  for (const Sample& s : op.samples()) {
    if (!s.error.empty() || s.in.empty() || s.in[0].shape != (op.scalar >= 0 ? Shape{3, 5} : Shape{3, 17})) continue;
    Sample even = s;
    for (In& in : even.in)
      if (!in.shape.empty()) in.shape = Shape{4, 6};
    out.push_back(even);
  }
  return out;
}

std::vector<Sample> views(std::string_view op) {
  auto shape = [](const Shape& in, const Shape& to) { return Sample{{{in}}, {{"shape", to}}}; };
  if (op == "reshape")
    return {shape({4, 6}, {24}),   shape({24}, {4, 6}),          shape({4, 6}, {2, 2, 6}),
            shape({6, 4}, {3, 8}), shape({12, 4, 2}, {6, 8, 2}), shape({4, 1, 6}, {1, 4, 2, 3}),
            shape({4, 9}, {6, 6})};
  if (op == "broadcast")
    return {shape({4, 1}, {4, 6}), shape({6}, {4, 6}), shape({}, {4}), shape({2, 1, 4}, {6, 2, 4, 4})};
  if (op == "permute") return {{{{Shape{4, 2, 6}}}, {{"dims", Shape{2, 0, 1}}}}};
  if (op == "contiguous" || op == "stop_gradient") return {{{{Shape{4, 6}}}, {}}};
  if (op == "barrier") return {{{{Shape{4, 6}}}, {}}, {{{Shape{4, 6}}, {Shape{5, 3}}}, {}}};
  if (op == "slice")
    return {{{{Shape{8, 4}}}, {{"begin", Shape{1, 0}}, {"end", Shape{7, 4}}, {"step", Shape{2, 1}}}},
            {{{Shape{4, 6}}}, {{"begin", Shape{0, 2}}, {"end", Shape{4, 6}}, {"step", Shape{1, 1}}}}};
  if (op == "pad")
    return {{{{Shape{4, 6}}}, {{"lo", Shape{0, 1}}, {"hi", Shape{0, 3}}, {"value", 0.0}}},
            {{{Shape{4, 6}}}, {{"lo", Shape{2, 0}}, {"hi", Shape{2, 0}}, {"value", 1.5}}}};
  if (op.starts_with("window")) {
    Sample s{{{Shape{4, 2, 6}}},
             {{"dims", Shape{2}}, {"size", Shape{3}}, {"stride", Shape{1}}, {"dilation", Shape{1}}}};
    if (op == "window_sum") s = {{{Shape{4, 2, 4, 3}}}, s.attrs.with("shape", Shape{4, 2, 6})};
    return {s};
  }
  if (op == "concat")
    return {{{{Shape{4, 6}}, {Shape{2, 6}}}, along(0)},
            {{{Shape{4, 6}}, {Shape{4, 2}}, {Shape{4, 4}}}, along(1)},
            {{{Shape{4, 6}}}, along(1)}};
  return {};
}

std::vector<Sample> contractions(std::string_view op) {
  auto dot = [](const Shape& a, const Shape& b, const Shape& ab, const Shape& bb, const Shape& ac, const Shape& bc) {
    return Sample{{{a}, {b}}, {{"a_batch", ab}, {"b_batch", bb}, {"a_contract", ac}, {"b_contract", bc}}};
  };
  if (op == "dot")
    return {dot({4, 6}, {6, 2}, {}, {}, {1}, {0}), dot({2, 4, 6}, {2, 6, 4}, {0}, {0}, {2}, {1}),
            dot({2, 4, 6}, {4, 2, 4}, {1}, {0}, {0}, {1}), dot({4, 6, 2}, {4, 6, 8}, {}, {}, {0, 1}, {0, 1}),
            dot({6}, {4}, {}, {}, {}, {})};
  if (op == "conv") {
    auto conv = [](const Shape& w, int64_t groups) {
      return Sample{{{Shape{2, 4, 6}}, {w}},
                    {{"stride", Shape{1}},
                     {"lo", Shape{1}},
                     {"hi", Shape{0}},
                     {"dilation", Shape{1}},
                     {"interior", Shape{0}},
                     {"groups", groups}}};
    };
    return {conv({2, 4, 3}, 1), conv({4, 2, 3}, 2)};
  }
  if (op.starts_with("winograd")) {
    const bool gradient = op == "winograd_weight_gradient";
    Attrs attrs{{"lo", Shape{1, 0}}, {"hi", Shape{1, 1}}};
    if (!gradient) attrs = attrs.with("flip", true);
    return {{{{Shape{2, 4, 6, 4}}, {gradient ? Shape{2, 4, 5, 6} : Shape{6, 4, 3, 3}}}, attrs}};
  }
  if (op == "grouped_dot") {
    const In offsets = index({4}, 9);
    return {{{{Shape{8, 4}}, {Shape{3, 4, 6}}, offsets}, {{"mode", std::string("rows")}}},
            {{{Shape{8, 4}}, {Shape{8, 6}}, offsets}, {{"mode", std::string("contraction")}}}};
  }
  if (op.starts_with("linear_cross_entropy")) {
    std::vector<Sample> out;
    for (bool bias : {false, true}) {
      Sample s{{{Shape{8, 4}}, {Shape{6, 4}}, index({8}, 6)},
               {{"ignore_index", int64_t{bias ? 2 : -100}},
                {"label_smoothing", bias ? 0.25 : 0.0},
                {"z_loss", bias ? 0.125 : 0.0}}};
      if (op.ends_with("_grad")) s.in.push_back({Shape{8}});
      if (bias) s.in.push_back({Shape{6}});
      out.push_back(s);
    }
    return out;
  }
  return {};
}

// Plain calls of attention: mods and lists of blocks have their own rule.
std::vector<Sample> attention(std::string_view op) {
  std::vector<Sample> out;
  for (int64_t kv_batch : {6, 1}) {
    const In q{Shape{6, 12, 4, 8}}, k{Shape{kv_batch, 6, 5, 8}}, v{Shape{kv_batch, 6, 5, 4}}, o{Shape{6, 12, 4, 4}},
        row{Shape{6, 12, 4}};
    Sample s{{q, k, v},
             {{"scale", 0.25}, {"score_tables", int64_t{0}}, {"mask_tables", int64_t{0}}, {"block_q", int64_t{0}}}};
    if (op == "attention_backward")
      for (const In& in : {o, row, row, o, row}) s.in.push_back(in);
    out.push_back(s);
  }
  return out;
}

std::vector<Sample> exact(std::string_view op) {
  if (op == "exact_index_add") return {{{index({8}, 4), {Shape{8, 6}}}, {{"rows", int64_t{4}}}}};
  if (op == "exact_scatter_add")
    return {{{index({4, 8}, 6), {Shape{4, 8}}}, {{"dim", int64_t{1}}, {"rows", int64_t{6}}}}};
  if (op == "exact_finish") return {{{{Shape{4, 6, 8}, kInt64, -1000, 1000}}, {{"dtype", kFloat64}}}};
  return {};
}

std::vector<Sample> indexed(std::string_view op) {
  const In x{Shape{4, 6}};
  if (op == "gather")
    return {{{x, index({4, 8}, 6)}, along(1)}, {{x, index({2, 6}, 4)}, along(0)}, {{x, index({2, 4}, 4)}, along(0)}};
  if (op == "scatter_add")
    return {{{x, index({4, 8}, 6), {Shape{4, 8}}}, along(1)},
            {{x, index({2, 6}, 4), {Shape{2, 6}}}, along(0)},
            {{x, index({6, 4}, 4), {Shape{6, 4}}}, along(0)}};
  if (op == "index_select") return {{{x, index({8}, 4)}, along(0)}, {{x, index({2}, 6)}, along(1)}};
  if (op == "index_add") return {{{x, index({8}, 4), {Shape{8, 6}}}, {}}};
  if (op == "index_copy") return {{{x, index({2}, 4), {Shape{2, 6}}}, {}}};
  if (op == "dynamic_update_slice")
    return {{{{Shape{8, 4}}, {Shape{4, 4}}, index({}, 5), index({}, 1)}, {}},
            {{{Shape{8, 4}}, {Shape{2, 2}}, index({}, 7), index({}, 3)}, {}}};
  if (op == "dynamic_slice")
    return {{{{Shape{8, 4}}, index({}, 5), index({}, 1)}, {{"sizes", Shape{4, 4}}}},
            {{{Shape{8, 4}}, index({}, 7), index({}, 3)}, {{"sizes", Shape{2, 2}}}}};
  if (op == "sort")
    return {{{x}, {{"dim", int64_t{1}}, {"descending", false}}}, {{x}, {{"dim", int64_t{0}}, {"descending", true}}}};
  if (op == "topk")
    return {{{x}, {{"k", int64_t{2}}, {"dim", int64_t{1}}, {"largest", true}}},
            {{x}, {{"k", int64_t{4}}, {"dim", int64_t{0}}, {"largest", false}}}};
  const In order{Shape{8}, kInt64, 0, 0}, y{Shape{8, 6}}, w{Shape{4, 2}};
  const Attrs k{{"k", int64_t{2}}};
  if (op == "expert_order") return {{{index({8, 2}, 4)}, {{"num_experts", int64_t{4}}}}};
  if (op == "dispatch_rows") return {{{x, order, order, order, w}, k}, {{x, order, order, order}, k}};
  if (op == "combine_rows") return {{{y, order, order, order, w}, k}, {{y, order, order, order}, k}};
  if (op == "row_dots") return {{{y, x, order, order, order}, k}};
  return {};
}

std::vector<Sample> others(const OpDef& op) {
  const std::string_view name = op.name;
  const In x{Shape{4, 6, 2}}, word{Shape{}, kInt64, 0, 1000};
  std::vector<Sample> out;
  if (name.starts_with("reduce_") || name == "exact_sum")
    for (const Shape& dims : {Shape{0}, Shape{1}, Shape{0, 2}, Shape{0, 1, 2}}) out.push_back({{x}, {{"dims", dims}}});
  if (name == "argmax" || name == "argmin" || name == "softmax")
    for (int64_t d : {0, 1}) out.push_back({{x}, along(d)});
  if (name == "cumsum")
    for (int64_t d : {0, 1}) out.push_back({{x}, {{"dim", d}, {"reverse", d == 1}}});
  if (name == "round_to")
    for (int64_t block : {0, 4})
      out.push_back(
          {{{Shape{4, 6, 8}}}, {{"exponent_bits", int64_t{4}}, {"mantissa_bits", int64_t{3}}, {"block", block}}});
  if (name == "iota")
    for (DType t : {kFloat32, kInt64})
      out.push_back({{}, {{"size", int64_t{12}}, {"dtype", t}, {"start", int64_t{5}}, {"step", int64_t{-3}}}});
  if (name == "random_bits") out.push_back({{word, word}, {{"shape", Shape{4, 6, 8}}, {"op_id", int64_t{7}}}});
  if (name == "random_bits_at")
    out.push_back({{word, word, word}, {{"shape", Shape{4, 12}}, {"strides", Shape{40, 3}}, {"op_id", int64_t{7}}}});
  const In m{Shape{4, 3, 3}};
  if (name == "solve") out.push_back({{m, {Shape{4, 3, 6}}}, {}});
  if (name == "cholesky") out.push_back({{{Shape{4, 1, 1}, kFloat32, 0.5, 2}}, {}});
  if (name == "determinant" || name == "cofactors" || name == "lu" || name == "qr" || name == "eigh" ||
      name == "matrix_exp")
    out.push_back({{m}, {}});
  if (name == "determinant") out.push_back({{{Shape{3, 3}}}, {}});
  if (name == "svd") out.push_back({{m}, {{"full", false}}});
  if (name == "debug_print") out.push_back({{{Shape{4, 6}}}, {{"label", std::string("x")}}});
  return out;
}

void append(std::vector<Sample>& to, std::vector<Sample> from) { to.insert(to.end(), from.begin(), from.end()); }

// Rounds to small integers: they give mixed truth values, and sums without rounding.
void round_off(Tensor& t) {
  std::vector<Real> v = to_reals(t);
  for (Real& x : v) x = static_cast<Real>(static_cast<int>(x));
  t = from_reals(v, t.type());
}

}  // namespace

const char* not_tried(const OpDef& op) {
  for (const Reason& r : kNotTried)
    if (r.op == op.name) return r.reason;
  return op.is(kCollective) ? "communicates between ranks: in no graph that is split" : nullptr;
}

const char* only_wrong(const OpDef& op) {
  for (const Reason& r : kOnlyWrong)
    if (r.op == op.name) return r.reason;
  return nullptr;
}

const char* excused(const RuleCase& c, size_t operand) {
  if (c.in[operand].numel() == 0) return "no elements: nothing to add";
  for (const Excuse& e : kExcuses)
    if (e.op == c.call().op->name && e.operand == operand && (!e.when || e.when(c))) return e.reason;
  return nullptr;
}

std::vector<const OpDef*> ruled_ops() {
  std::vector<const OpDef*> out;
  for (const OpDef* op : all_ops())
    if (!not_tried(*op)) out.push_back(op);
  return out;
}

std::vector<Sample> rule_samples(const OpDef& op) {
  std::vector<Sample> out;
  if (op.samples)
    for (const Sample& s : op.samples())
      if (s.error.empty()) out.push_back(s);
  if (op.is(kPointwise)) append(out, elementwise(op));
  std::string_view like = op.name;
  if (like == "exact_dot" || like == "exact_grouped_dot" || like == "exact_row_dots") like.remove_prefix(6);
  append(out, views(op.name));
  append(out, contractions(like));
  append(out, indexed(like));
  append(out, others(op));
  append(out, exact(op.name));
  if (like.starts_with("attention")) append(out, attention(op.name));
  return out;
}

RuleCase rule_case(const OpDef& op, const Sample& sample, uint64_t seed) {
  // Elementwise ops of integers have i32 samples; all other data becomes f64.
  // Winograd's convolutions accept f32 only: for small integers, their sums are exact.
  const bool whole = op.scalar >= 0 && sample.in[0].dtype == kInt32;
  const bool single = std::string_view(op.name).starts_with("winograd");
  Case c = make_case(op, sample, whole ? kInt32 : single ? kFloat32 : kFloat64, seed);
  RuleCase r;
  const Types types = infer(c, c.in);
  Node n;
  n.op = &op;
  n.attrs = c.attrs;
  for (Tensor& t : c.in) {
    if (single || (types[0].dtype == kBool && is_floating(t.dtype()))) round_off(t);
    n.inputs.push_back(r.graph.add_input(t.type()));
  }
  for (const TensorType& t : types) n.outputs.push_back(t);
  r.node = r.graph.add(std::move(n));
  r.out = run(c, c.in);
  r.in = std::move(c.in);
  return r;
}

std::string describe(const RuleCase& c) {
  std::string s = c.call().op->name;
  for (const Tensor& t : c.in) s += str_cat(" ", t.type());
  s += " ->";
  for (const TensorType& t : c.call().outputs) s += str_cat(" ", t);
  for (const auto& [key, value] : c.call().attrs.entries())
    if (const auto* i = std::get_if<int64_t>(&value))
      s += str_cat(" ", key, "=", *i);
    else if (const auto* dims = std::get_if<Shape>(&value))
      s += str_cat(" ", key, "=", *dims);
  return s;
}

}  // namespace weft::testing
