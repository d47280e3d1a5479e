#include "ops/testing/cases.h"

#include <algorithm>
#include <cmath>

#include "framework/dispatch/dispatch.h"

namespace weft::testing {

using weft::internal::Sample;
using weft::internal::SampleInput;

namespace {

constexpr DType kFloats[] = {kFloat32, kFloat64, kBFloat16, kFloat16};
constexpr DType kWhole[] = {kInt64, kInt32, kInt16, kInt8, kUInt8, kBool};

// f32 means every data dtype; in elementwise ops, so does i32.
bool stands_for_all(const OpDef& op, const SampleInput& in) {
  return in.dtype == kFloat32 || (op.is(kPointwise) && op.scalar >= 0 && in.dtype == kInt32);
}

bool has_free(const OpDef& op, const Sample& s) {
  return std::any_of(s.in.begin(), s.in.end(), [&](const SampleInput& i) { return stands_for_all(op, i); });
}

bool accepted(const Case& c) {
  try {
    infer(c, c.in);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// grouped_dot's offsets ascend from 0 to the number of rows: an empty group, one row, and the rest.
void fix_offsets(Case& c) {
  if (!std::string_view(c.op->name).ends_with("grouped_dot")) return;
  Tensor& offsets = c.in[2];
  std::vector<Real> v = to_reals(offsets);
  std::sort(v.begin(), v.end());
  offsets = from_reals(v, offsets.type());
}

// Slots, tokens and rows of a random order, for the ops that move rows to experts and back.
void fix_order(Case& c, Random& random) {
  std::string_view name = c.op->name;
  if (name == "exact_row_dots") name.remove_prefix(6);
  if (name != "dispatch_rows" && name != "combine_rows" && name != "row_dots") return;
  const size_t at = name == "row_dots" ? 2 : 1;
  const int64_t n = c.in[at].numel(), k = c.attrs.i("k");
  if (c.in[at].dim() != 1 || c.in[at + 1].numel() != n || c.in[at + 2].numel() != n || k < 1) return;  // an error
  std::vector<std::pair<uint64_t, int64_t>> keys;
  for (int64_t i = 0; i < n; ++i) keys.emplace_back(random.bits(), i);
  std::sort(keys.begin(), keys.end());
  std::vector<Real> slots, tokens, rows(static_cast<size_t>(n));
  for (int64_t r = 0; r < n; ++r) {
    const int64_t slot = keys[static_cast<size_t>(r)].second;
    slots.push_back(static_cast<Real>(slot));
    tokens.push_back(static_cast<Real>(slot / k));
    rows[static_cast<size_t>(slot)] = static_cast<Real>(r);
  }
  const std::vector<Real>* values[] = {&slots, &tokens, &rows};
  for (size_t i = 0; i < 3; ++i) c.in[at + i] = from_reals(*values[i], c.in[at + i].type());
}

}  // namespace

Case make_case(const OpDef& op, const Sample& sample, DType dtype, uint64_t seed) {
  Case c;
  c.op = &op;
  c.attrs = sample.attrs;
  c.grad = sample.grad;
  Random random(seed);
  for (const SampleInput& in : sample.in) {
    const bool free = stands_for_all(op, in);
    const DType t = free ? dtype : in.dtype;
    double lo = in.lo, hi = in.hi;
    if (!is_floating(t)) {
      lo = std::ceil(lo);
      hi = std::floor(hi);
      if (t == kUInt8) lo = std::max(lo, 0.0);
      if (lo > hi) lo = hi = 1;
    }
    c.in.push_back(random_tensor(t, in.shape, random, lo, hi));
    c.data.push_back(free);
  }
  fix_offsets(c);
  fix_order(c, random);
  return c;
}

std::vector<Case> cases_of(const OpDef& op, DType dtype) {
  std::vector<Case> cases;
  if (!op.samples) return cases;
  std::vector<Sample> samples = op.samples();
  for (size_t i = 0; i < samples.size(); ++i) {
    if (!samples[i].error.empty() || !has_free(op, samples[i])) continue;
    Case c = make_case(op, samples[i], dtype, 1000 + i);
    c.label = str_cat("sample ", i, ", ", dtype);
    cases.push_back(std::move(c));
  }
  return cases;
}

std::vector<Case> cases_of(const OpDef& op) {
  std::vector<Case> cases;
  if (!op.samples) return cases;
  std::vector<Sample> samples = op.samples();
  for (size_t i = 0; i < samples.size(); ++i) {
    if (!samples[i].error.empty()) continue;
    auto add = [&](DType t, bool must) {
      Case c = make_case(op, samples[i], t, 1000 + i);
      c.label = str_cat("sample ", i, ", ", t);
      if (must || accepted(c)) cases.push_back(std::move(c));
    };
    const bool floats = std::any_of(samples[i].in.begin(), samples[i].in.end(),
                                    [](const SampleInput& in) { return in.dtype == kFloat32; });
    if (floats)
      for (DType t : kFloats) add(t, true);
    if (has_free(op, samples[i]))
      for (DType t : kWhole) add(t, false);
    else
      add(kFloat32, true);
  }
  return cases;
}

std::vector<Case> large_cases_of(const OpDef& op) {
  std::string_view name = op.name;
  if (name == "exact_dot" || name == "exact_grouped_dot" || name == "exact_row_dots") name.remove_prefix(6);
  const SampleInput wide{Shape{37, 4099}}, square{Shape{300, 301}};
  auto index = [](const Shape& shape, int64_t end) {
    return SampleInput{shape, kInt64, 0, static_cast<double>(end - 1)};
  };
  std::vector<Sample> samples;
  if (op.scalar >= 0) {
    for (const Sample& s : op.samples()) {
      if (!s.error.empty()) continue;
      Sample big = s;
      for (SampleInput& in : big.in)
        if (!in.shape.empty()) in.shape = Shape{70001};
      samples.push_back(big);
      break;
    }
  } else if (name.starts_with("reduce_") || name == "exact_sum") {
    for (const Shape& dims : {Shape{0}, Shape{1}, Shape{0, 1}})
      samples.push_back({{SampleInput{Shape{37, 4099}, kFloat32, 0.98, 1.02}}, {{"dims", dims}}});
  } else if (name == "argmax" || name == "argmin" || name == "softmax") {
    for (int64_t dim : {0, 1}) samples.push_back({{wide}, {{"dim", dim}}});
  } else if (name == "cumsum") {
    for (int64_t dim : {0, 1}) samples.push_back({{wide}, {{"dim", dim}, {"reverse", dim == 1}}});
  } else if (name == "round_to") {
    for (int64_t block : {0, 32})
      samples.push_back(
          {{wide}, {{"exponent_bits", int64_t{2}}, {"mantissa_bits", int64_t{1}}, {"block", block}}, "", false});
  } else if (name == "cast") {
    samples.push_back({{wide}, {{"dtype", kBFloat16}}});
  } else if (name == "reshape") {
    samples.push_back({{wide}, {{"shape", Shape{4099, 37}}}});
  } else if (name == "permute") {
    samples.push_back({{wide}, {{"dims", Shape{1, 0}}}});
  } else if (name == "broadcast") {
    samples.push_back({{SampleInput{Shape{1, 4099}}}, {{"shape", Shape{37, 4099}}}});
  } else if (name == "pad") {
    samples.push_back({{wide}, {{"lo", Shape{3, 1}}, {"hi", Shape{0, 2}}, {"value", 1.0}}});
  } else if (name == "concat") {
    samples.push_back({{wide, wide}, {{"dim", int64_t{1}}}});
  } else if (name == "dot") {
    const Shape none{};
    samples.push_back({{SampleInput{Shape{300, 517}}, SampleInput{Shape{517, 129}}},
                       {{"a_batch", none}, {"b_batch", none}, {"a_contract", Shape{1}}, {"b_contract", Shape{0}}}});
    samples.push_back(
        {{SampleInput{Shape{6, 100, 65}}, SampleInput{Shape{6, 100, 65}}},
         {{"a_batch", Shape{0}}, {"b_batch", Shape{0}}, {"a_contract", Shape{2}}, {"b_contract", Shape{2}}}});
  } else if (name == "grouped_dot") {
    samples.push_back({{SampleInput{Shape{400, 65}}, SampleInput{Shape{4, 65, 130}}, index(Shape{5}, 401)},
                       {{"mode", std::string("rows")}}});
    samples.push_back({{SampleInput{Shape{400, 65}}, SampleInput{Shape{400, 130}}, index(Shape{5}, 401)},
                       {{"mode", std::string("contraction")}}});
  } else if (name.starts_with("linear_cross_entropy")) {  // several chunks of rows
    Sample s{{SampleInput{Shape{1100, 33}}, SampleInput{Shape{70, 33}}, index(Shape{1100}, 70)},
             {{"ignore_index", int64_t{5}}, {"label_smoothing", 0.125}, {"z_loss", 0.0}}};
    if (name.ends_with("_grad")) s.in.push_back({Shape{1100}});
    s.in.push_back({Shape{70}});
    samples.push_back(s);
  } else if (name == "expert_order") {
    samples.push_back({{index(Shape{30011, 2}, 9)}, {{"num_experts", int64_t{9}}}});
  } else if (name == "dispatch_rows" || name == "combine_rows" || name == "row_dots") {
    const SampleInput x{Shape{700, 130}}, y{Shape{1400, 130}}, order = index(Shape{1400}, 1), w{Shape{700, 2}};
    const Attrs k{{"k", int64_t{2}}};
    if (name == "row_dots") {
      samples.push_back({{y, x, order, order, order}, k});
    } else {
      samples.push_back({{name == "dispatch_rows" ? x : y, order, order, order, w}, k});
      samples.push_back({{name == "dispatch_rows" ? x : y, order, order, order}, k});
    }
  } else if (name == "gather") {
    samples.push_back({{square, index(Shape{300, 301}, 300)}, {{"dim", int64_t{0}}}});
  } else if (name == "index_select") {
    samples.push_back({{square, index(Shape{700}, 300)}, {{"dim", int64_t{0}}}});
  } else if (name == "scatter_add") {
    samples.push_back({{square, index(Shape{300, 301}, 300), square}, {{"dim", int64_t{0}}}});
  } else if (name == "index_add") {
    samples.push_back({{square, index(Shape{900}, 300), SampleInput{Shape{900, 301}}}, {}});
  } else if (name == "exact_index_add") {
    samples.push_back({{index(Shape{900}, 300), SampleInput{Shape{900, 301}}}, {{"rows", int64_t{300}}}});
  } else if (name == "exact_scatter_add") {
    samples.push_back({{index(Shape{300, 301}, 300), square}, {{"dim", int64_t{0}}, {"rows", int64_t{300}}}});
  } else if (name == "exact_finish") {
    samples.push_back({{SampleInput{Shape{5000, 8}, kInt64, -1e3, 1e3}}, {{"dtype", kFloat32}}});
  } else if (name == "sort") {
    samples.push_back({{square}, {{"dim", int64_t{0}}, {"descending", true}}});
  } else if (name == "topk") {
    samples.push_back({{square}, {{"k", int64_t{7}}, {"dim", int64_t{1}}, {"largest", true}}});
  } else if (name == "random_bits") {
    const SampleInput word{Shape{}, kInt64, 0, 1e9};
    samples.push_back({{word, word}, {{"shape", Shape{100003}}, {"op_id", int64_t{5}}}});
  } else if (name == "random_bits_at") {
    const SampleInput word{Shape{}, kInt64, 0, 1e9};
    samples.push_back(
        {{word, word, word}, {{"shape", Shape{301, 333}}, {"strides", Shape{5000, 1}}, {"op_id", int64_t{5}}}});
  } else if (name == "iota") {
    samples.push_back({{}, {{"size", int64_t{100003}}, {"dtype", kFloat32}, {"start", 0.5}, {"step", 0.25}}});
  }
  std::vector<Case> cases;
  for (const Sample& s : samples)
    for (DType t : {kFloat32, kBFloat16, kFloat64}) {
      Case c = make_case(op, s, t, 77);
      c.label = str_cat("large, ", t);
      if (accepted(c)) cases.push_back(std::move(c));
    }
  return cases;
}

namespace {
SmallVec<const Tensor*, 4> pointers(const std::vector<Tensor>& in) {
  SmallVec<const Tensor*, 4> p;
  for (const Tensor& t : in) p.push_back(&t);
  return p;
}
}  // namespace

std::vector<Tensor> run(const Case& c, const std::vector<Tensor>& in) {
  return dispatch_multi(*c.op, TensorPtrs(pointers(in)), c.attrs);
}

Types infer(const Case& c, const std::vector<Tensor>& in) {
  std::vector<TensorType> types;
  for (const Tensor& t : in) types.push_back(t.type());
  return infer_types(*c.op, c.attrs, types);
}

::testing::AssertionResult matches_reference(const Case& c, const std::vector<Tensor>& in,
                                             const std::vector<Tensor>& out) {
  RefFn fn = find_reference(*c.op);
  if (!fn) return ::testing::AssertionFailure() << c.op->name << " has no reference";
  std::vector<RefTensor> operands;
  for (const Tensor& t : in) operands.push_back({t.type(), to_reals(t)});
  const Types types = infer(c, in);
  if (types.size() != out.size()) return ::testing::AssertionFailure() << out.size() << " results";
  std::vector<RefResult> want = fn({*c.op, c.attrs, operands, types});
  for (size_t i = 0; i < out.size(); ++i) {
    if (!(out[i].type() == types[i]))
      return ::testing::AssertionFailure()
             << "result " << i << " is " << out[i].type().to_string() << "; inferred " << types[i].to_string();
    if (want[i].bound.empty()) want[i].bound.assign(want[i].v.size(), 0);
    auto ok = within(out[i], want[i].v, want[i].bound);
    if (!ok) return ok << " in result " << i;
  }
  return ::testing::AssertionSuccess();
}

}  // namespace weft::testing
