// The op records of pointwise.inc: each row becomes one OpDef.
#include "ops/core/creation.h"
#include "ops/core/pointwise.h"
#include "ops/core/record_parts.h"
#include "ops/core/reductions/reduce.h"
#include "ops/kernels/kernels.h"

namespace weft {

using internal::Sample;
using internal::SampleInput;

namespace {

using internal::dims_pointwise;
using kernels::Pw;

// True if `text` contains the identifier `name`: shows which values a derivative reads, hence which memory is kept.
constexpr bool mentions(std::string_view text, char name) {
  auto word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  for (size_t i = 0; i < text.size(); ++i)
    if (text[i] == name && (i == 0 || !word(text[i - 1])) && (i + 1 == text.size() || !word(text[i + 1]))) return true;
  return false;
}

Types infer_pointwise(const InferCall& c) {
  const auto op = static_cast<Pw>(c.op.scalar);
  const kernels::PwInfo& info = kernels::pointwise_info(op);
  const size_t first = op == Pw::where ? 1 : 0;
  const TensorType& lead = c.in[first];
  Shape shape;
  for (const TensorType& t : c.in) {
    if (t.shape.empty()) continue;
    WEFT_CHECK(shape.empty() || t.shape == shape, c.op.name, ": shapes ", shape, " and ", t.shape,
               " differ; need equal shapes or 0-d operands");
    shape = t.shape;
  }
  if (first) WEFT_CHECK(c.in[0].dtype == kBool, "where: the condition is ", c.in[0].dtype, "; need bool");
  for (size_t i = first; i < c.in.size(); ++i)
    WEFT_CHECK(c.in[i].dtype == lead.dtype, c.op.name, ": operands are ", lead.dtype, " and ", c.in[i].dtype,
               "; need one dtype");
  WEFT_CHECK(kernels::pointwise_takes(op, lead.dtype), c.op.name, ": does not support ", lead.dtype,
             "; convert with to(", kernels::pointwise_takes(op, kFloat32) ? kFloat32 : kInt32, ") first");
  return {TensorType{info.bool_result ? kBool : lead.dtype, pointwise_device(c.op, c.in), shape}};
}

void run_pointwise(const KernelCall& c) { kernels::pointwise(static_cast<Pw>(c.op.scalar), c.in, c.out[0]); }

// The gradient of an operand that was 0-d is summed over the shape to which it was broadcast.
Tensor fit(const Tensor& g, const Tensor& operand) {
  return g.defined() && operand.dim() == 0 && g.dim() > 0 ? sum(g) : g;
}

DType sample_dtype(kernels::PwTypes t) {
  return t == kernels::PwTypes::INT || t == kernels::PwTypes::BITS ? kInt32 : kFloat32;
}

std::vector<Sample> samples_of(Pw op, double lo, double hi) {
  const kernels::PwInfo& info = kernels::pointwise_info(op);
  const DType t = sample_dtype(info.types);
  auto in = [&](Shape shape) { return SampleInput{shape, t, lo, hi}; };
  std::vector<Sample> s;
  for (const Shape& shape : {Shape{17}, Shape{3, 5}, Shape{0, 3}, Shape{}, Shape{2, 1, 33}}) {
    std::vector<SampleInput> operands(info.operands, in(shape));
    if (op == Pw::where) operands[0] = {shape, kBool, 0, 1};
    s.push_back({operands, {}, "", true});
  }
  if (info.operands < 2) return s;
  const int last = info.operands - 1;
  for (int scalar : {last, last - 1}) {  // 0-d operands broadcast
    Sample with = s[1];
    with.in[scalar].shape = Shape{};
    s.push_back(with);
  }
  Sample bad = s[1];
  bad.in[last].shape = Shape{5, 3};
  bad.error = "shapes [3, 5] and [5, 3] differ";
  s.push_back(bad);
  bad = s[1];
  bad.in[last].dtype = kInt64;
  bad.error = "need one dtype";
  s.push_back(bad);
  return s;
}

#define WEFT_UNARY(name, types, expr, vjp, lo, hi, flops, doc)                 \
  Grads vjp_##name(const VjpCall& c) {                                         \
    [[maybe_unused]] const Tensor &g = c.grad[0], &x = c.in[0], &y = c.out[0]; \
    return {Tensor(vjp)};                                                      \
  }                                                                            \
  std::vector<Sample> samples_##name() { return samples_of(Pw::name, lo, hi); }
#define WEFT_TEST(name, types, expr, doc) \
  std::vector<Sample> samples_##name() { return samples_of(Pw::name, -1, 1); }
#define WEFT_BINARY(name, types, expr, vjp_a, vjp_b, lo, hi, flops, doc)                                   \
  Grads vjp_##name(const VjpCall& c) {                                                                     \
    [[maybe_unused]] const Tensor &g = c.grad[0], &a = c.in[0], &b = c.in[1], &y = c.out[0];               \
    return {c.needs(0) ? fit(Tensor(vjp_a), a) : Tensor(), c.needs(1) ? fit(Tensor(vjp_b), b) : Tensor()}; \
  }                                                                                                        \
  std::vector<Sample> samples_##name() { return samples_of(Pw::name, lo, hi); }
#define WEFT_COMPARE(name, types, expr, doc) \
  std::vector<Sample> samples_##name() { return samples_of(Pw::name, 0, 2); }
#define WEFT_TERNARY(name, types, expr, vjp_a, vjp_b, flops, doc)                                                      \
  Grads vjp_##name(const VjpCall& op) {                                                                                \
    [[maybe_unused]] const Tensor &g = op.grad[0], &c = op.in[0], &a = op.in[1], &b = op.in[2];                        \
    return {Tensor(), op.needs(1) ? fit(Tensor(vjp_a), a) : Tensor(), op.needs(2) ? fit(Tensor(vjp_b), b) : Tensor()}; \
  }                                                                                                                    \
  std::vector<Sample> samples_##name() { return samples_of(Pw::name, -3, 3); }
#include "ops/kernels/pointwise.inc"

// Ops whose first two operands can be swapped without changing a bit. maximum and minimum are not included: of 0 and -0
// they return the second.
constexpr bool commutes(Pw op) {
  switch (op) {
    case Pw::add:
    case Pw::mul:
    case Pw::bit_and:
    case Pw::bit_or:
    case Pw::bit_xor:
    case Pw::eq:
    case Pw::ne:
    case Pw::logical_and:
    case Pw::logical_or:
    case Pw::logical_xor:
      return true;
    default:
      return false;
  }
}

// The operands in which an op is linear; `jointly`: in all of them together.
constexpr uint32_t linear_in(Pw op, bool* jointly) {
  *jointly = op == Pw::add || op == Pw::sub || op == Pw::where;
  switch (op) {
    case Pw::add:
    case Pw::sub:
    case Pw::mul:
      return 3;
    case Pw::neg:
    case Pw::div:
      return 1;
    case Pw::where:
      return 6;
    default:
      return 0;
  }
}

// The functions in torch.autocast's list for f32.
constexpr bool wants_f32(Pw op) {
  switch (op) {
    case Pw::exp:
    case Pw::expm1:
    case Pw::log:
    case Pw::log1p:
    case Pw::pow:
    case Pw::square:
    case Pw::rsqrt:
    case Pw::reciprocal:
      return true;
    default:
      return false;
  }
}

constexpr uint32_t reads2(std::string_view va, std::string_view vb, char first, char second) {
  uint32_t r = 0;
  if (mentions(va, first) || mentions(vb, first)) r |= 1;
  if (mentions(va, second) || mentions(vb, second)) r |= 2;
  return r;
}

constexpr OpDef record(const char* name, const char* doc, Pw op, int operands, double flops,
                       Grads (*vjp)(const VjpCall&), std::vector<Sample> (*samples)(), uint32_t reads_in,
                       uint32_t reads_out) {
  OpDef r;
  r.name = name;
  r.doc = doc;
  r.traits = kPointwise;
  if (commutes(op)) r.traits |= kCommutative;
  if (!vjp) r.traits |= kNotDifferentiable;
  if (wants_f32(op)) r.traits |= kWantsF32;
  r.num_inputs = operands;
  r.flops_per_point = flops;
  r.infer = infer_pointwise;
  r.vjp = vjp;
  r.dims = dims_pointwise;
  r.kernel = run_pointwise;
  r.samples = samples;
  r.scalar = static_cast<int>(op);
  r.vjp_reads_in = reads_in;
  r.vjp_reads_out = reads_out;
  r.linear = linear_in(op, &r.jointly);
  return r;
}

constexpr bool differentiable(kernels::PwTypes t) { return t != kernels::PwTypes::INT && t != kernels::PwTypes::BITS; }

const OpDef kRecords[] = {
#define WEFT_UNARY(name, types, expr, vjp, lo, hi, flops, doc)                                           \
  record(#name, doc, Pw::name, 1, flops, differentiable(kernels::PwTypes::types) ? vjp_##name : nullptr, \
         samples_##name, mentions(#vjp, 'x'), mentions(#vjp, 'y')),
#define WEFT_TEST(name, types, expr, doc) record(#name, doc, Pw::name, 1, 1, nullptr, samples_##name, 0, 0),
#define WEFT_BINARY(name, types, expr, vjp_a, vjp_b, lo, hi, flops, doc)                                 \
  record(#name, doc, Pw::name, 2, flops, differentiable(kernels::PwTypes::types) ? vjp_##name : nullptr, \
         samples_##name, reads2(#vjp_a, #vjp_b, 'a', 'b'), mentions(#vjp_a, 'y') || mentions(#vjp_b, 'y')),
#define WEFT_COMPARE(name, types, expr, doc) record(#name, doc, Pw::name, 2, 1, nullptr, samples_##name, 0, 0),
#define WEFT_TERNARY(name, types, expr, vjp_a, vjp_b, flops, doc) \
  record(#name, doc, Pw::name, 3, flops, vjp_##name, samples_##name, 1, 0),
#include "ops/kernels/pointwise.inc"
};

Types infer_cast(const InferCall& c) {
  TensorType t = c.in[0];
  t.dtype = c.attrs.get<DType>("dtype");
  return {t};
}

Grads vjp_cast(const VjpCall& c) {
  return {is_floating(c.in[0].dtype()) ? cast(c.grad[0], c.in[0].dtype()) : Tensor()};
}

// Linear if no value is rounded to fewer digits: then the terms of a sum may be cast one by one.
DimMap dims_cast(const Attrs& attrs, std::span<const TensorType> in, std::span<const TensorType> out) {
  DimMap m = dims_pointwise(attrs, in, out);
  const DType from = in[0].dtype, to = out[0].dtype;
  const bool wider = itemsize(to) > itemsize(from) || (to == from && to != kBool);
  // Sums of small integers wrap: wider ones would not.
  m.linear = wider && (to == from || !is_small_integer(from)) && from != kBool && to != kBool &&
             (is_floating(to) || !is_floating(from));
  return m;
}

std::vector<Sample> samples_cast() {
  std::vector<Sample> s;
  for (DType to : {kFloat32, kFloat64, kBFloat16, kFloat16, kInt64, kInt32, kInt16, kInt8, kBool})
    for (DType from : {kFloat32, kInt64, kBool})
      s.push_back({{{Shape{3, 17}, from, from == kBool ? 0. : -3., from == kBool ? 1. : 3.}},
                   {{"dtype", to}},
                   "",
                   from == kFloat32 && to == kFloat64});
  s.push_back({{{Shape{0}, kFloat32, -3, 3}}, {{"dtype", kFloat64}}, "", true});
  return s;
}

}  // namespace

const OpDef cast_op = {
    .name = "cast",
    .doc = "The operand converted to {dtype}.",
    .traits = kPointwise,
    .infer = infer_cast,
    .vjp = vjp_cast,
    .dims = dims_cast,
    .kernel = internal::run_copy,
    .samples = samples_cast,
    .vjp_reads_in = 0,
    .vjp_reads_out = 0,
    .linear = 1,
};

std::span<const OpDef* const> pointwise_ops() {
  static const auto all = [] {
    std::vector<const OpDef*> v;
    for (const OpDef& r : kRecords) v.push_back(&r);
    v.push_back(&cast_op);
    return v;
  }();
  return all;
}

const OpDef& pointwise_op(std::string_view name) {
  for (const OpDef* op : pointwise_ops())
    if (name == op->name) return *op;
  WEFT_BUG_IF(true, "no pointwise op is named ", name);
}

namespace internal {
const OpDef* pointwise_records() { return kRecords; }
}  // namespace internal

}  // namespace weft
