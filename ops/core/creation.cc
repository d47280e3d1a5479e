// Records of constant, iota and random_bits, and the functions that use them.
#include "ops/core/creation.h"

#include <cmath>
#include <cstdlib>
#include <limits>

#include "framework/autodiff/grad.h"
#include "framework/dispatch/dispatch.h"
#include "ops/core/fits.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"
#include "ops/core/record_parts.h"
#include "ops/core/reductions/reduce.h"
#include "ops/kernels/kernels.h"

namespace weft {

using namespace internal;

namespace {

// ---- records ----

Device device_of(const InferCall& c) {
  if (!c.attrs.has("device")) return c.in.empty() ? Device::cpu() : c.in[0].device;
  const std::string& name = c.attrs.get<std::string>("device");
  const size_t colon = name.find(':');
  const std::string kind = name.substr(0, colon);
  const int index = colon == std::string::npos ? 0 : std::atoi(name.c_str() + colon + 1);
  if (kind == "meta") return Device::meta();
  if (kind == "cuda") return Device::cuda(index);
  if (kind == "other") return Device::other(index);
  WEFT_CHECK(kind == "cpu", c.op.name, ": device is '", name, "'; need cpu, cuda, meta or other");
  return Device::cpu(index);
}

void check_number(const InferCall& c, const char* key) {
  const AttrValue* v = c.attrs.find(key);
  WEFT_CHECK(v && (std::holds_alternative<double>(*v) || std::holds_alternative<int64_t>(*v)), c.op.name, ": ", key,
             " must be a number");
}

Types infer_constant(const InferCall& c) {
  check_number(c, "value");
  return {TensorType{c.attrs.get<DType>("dtype"), device_of(c), {}}};
}

void run_constant(const KernelCall& c) {
  const AttrValue& v = *c.attrs.find("value");
  if (std::holds_alternative<int64_t>(v)) {
    kernels::fill_int(c.out[0], std::get<int64_t>(v));
  } else {
    kernels::fill(c.out[0], std::get<double>(v));
  }
}

Types infer_iota(const InferCall& c) {
  const int64_t size = c.attrs.i("size");
  check_number(c, "start");
  check_number(c, "step");
  WEFT_CHECK(size >= 0, "iota: size is ", size, "; need 0 or more");
  return {TensorType{c.attrs.get<DType>("dtype"), device_of(c), Shape{size}}};
}

void run_iota(const KernelCall& c) {
  const AttrValue &start = *c.attrs.find("start"), &step = *c.attrs.find("step");
  if (!is_floating(c.out[0].dtype) && std::holds_alternative<int64_t>(start) && std::holds_alternative<int64_t>(step)) {
    kernels::iota_int(c.out[0], std::get<int64_t>(start), std::get<int64_t>(step));
  } else {
    kernels::iota(c.out[0], number(c.attrs, "start"), number(c.attrs, "step"));
  }
}

Types infer_random_bits(const InferCall& c) {
  for (const TensorType& t : c.in)
    WEFT_CHECK(t.dtype == kInt64 && t.shape.empty(), "random_bits: seed and step are ", c.in[0], " and ", c.in[1],
               "; need i64 scalars");
  const Shape& shape = c.attrs.ints("shape");
  checked_numel(shape, "random_bits");
  return {TensorType{kInt32, device_of(c), shape}};
}

void run_random_bits(const KernelCall& c) {
  kernels::random_bits(static_cast<uint64_t>(*c.in[0].as<int64_t>()), static_cast<uint64_t>(*c.in[1].as<int64_t>()),
                       static_cast<uint32_t>(c.attrs.i("op_id")), 0, c.out[0]);
}

// The same words at other positions, for a shard whose element i0, i1, ... has position base + i0 strides[0] + ... in
// the whole tensor. base: 0-d, or one value for each position along some dims (extent 1 or the full extent in each).
Types infer_random_bits_at(const InferCall& c) {
  const Shape &shape = c.attrs.ints("shape"), &strides = c.attrs.ints("strides"), &base = c.in[2].shape;
  bool fits = base.empty() || base.size() == shape.size();
  for (int d = 0; fits && d < base.size(); ++d) fits = base[d] == 1 || base[d] == shape[d];
  WEFT_CHECK(c.in[0].dtype == kInt64 && c.in[0].shape.empty() && c.in[1].dtype == kInt64 && c.in[1].shape.empty() &&
                 c.in[2].dtype == kInt64 && fits,
             "random_bits_at: seed, step and base are ", c.in[0], ", ", c.in[1], " and ", c.in[2],
             "; need i64 scalars, base 0-d or broadcastable to ", shape);
  checked_numel(shape, "random_bits_at");
  WEFT_CHECK(strides.size() == shape.size(), "random_bits_at: strides ", strides, " for shape ", shape,
             "; need one for each dim");
  return {TensorType{kInt32, device_of(c), shape}};
}

void run_random_bits_at(const KernelCall& c) {
  const Shape &shape = c.attrs.ints("shape"), &strides = c.attrs.ints("strides");
  kernels::random_bits_at(static_cast<uint64_t>(*c.in[0].as<int64_t>()), static_cast<uint64_t>(*c.in[1].as<int64_t>()),
                          static_cast<uint32_t>(c.attrs.i("op_id")), c.in[2], shape, strides, c.out[0]);
}

std::vector<Sample> samples_random_bits_at() {
  const SampleInput word{Shape{}, kInt64, 0, 1000};
  auto attrs = [](const Shape& shape, const Shape& strides) {
    return Attrs{{"shape", shape}, {"strides", strides}, {"op_id", int64_t{7}}};
  };
  return {{{word, word, word}, attrs({}, {})},
          {{word, word, word}, attrs({0, 4}, {4, 1})},
          {{word, word, word}, attrs({3, 5, 7}, {70, 14, 1})},
          {{word, word, word}, attrs({5, 6}, {1, 5})},
          {{word, word, {Shape{1, 5, 1}, kInt64, 0, 1000}}, attrs({3, 5, 7}, {70, 0, 1})},
          {{word, word, {Shape{3, 2}, kInt64, 0, 9}}, attrs({3, 5}, {5, 1}), "need i64 scalars"},
          {{word, word, word}, attrs({2, 2}, {1}), "strides [1] for shape [2, 2]"},
          {{word, word, {Shape{1}, kInt64, 0, 9}}, attrs({2}, {1})},
          {{word, word, {Shape{1}, kFloat32, 0, 9}}, attrs({2}, {1}), "need i64 scalars"}};
}

std::vector<Sample> samples_constant() {
  std::vector<Sample> s;
  for (DType t : {kFloat32, kFloat64, kBFloat16, kFloat16, kInt64, kInt32, kInt16, kInt8, kUInt8, kBool}) {
    s.push_back({{}, {{"value", 1.5}, {"dtype", t}}});
    s.push_back({{}, {{"value", int64_t{3}}, {"dtype", t}}});
  }
  s.push_back({{}, {{"value", true}, {"dtype", kFloat32}}, "constant: value must be a number"});
  return s;
}

std::vector<Sample> samples_iota() {
  auto attrs = [](int64_t size, DType t, AttrValue start, AttrValue step) {
    return Attrs{{"size", size}, {"dtype", t}, {"start", start}, {"step", step}};
  };
  std::vector<Sample> s;
  for (int64_t size : {0, 1, 17, 1000}) {
    s.push_back({{}, attrs(size, kFloat32, 0.5, 0.25)});
    s.push_back({{}, attrs(size, kInt64, int64_t{-3}, int64_t{7})});
    s.push_back({{}, attrs(size, kInt32, int64_t{5}, int64_t{-1})});
  }
  s.push_back({{}, attrs(-1, kInt32, int64_t{0}, int64_t{1}), "iota: size is -1; need 0 or more"});
  return s;
}

std::vector<Sample> samples_random_bits() {
  const SampleInput word{Shape{}, kInt64, 0, 1000};
  std::vector<Sample> s;
  for (const Shape& shape : {Shape{}, Shape{0, 4}, Shape{1003}, Shape{3, 5, 7}})
    s.push_back({{word, word}, {{"shape", shape}, {"op_id", int64_t{7}}}});
  s.push_back({{word, {Shape{1}, kInt64, 0, 9}}, {{"shape", Shape{2}}, {"op_id", int64_t{0}}}, "need i64 scalars"});
  s.push_back({{word, word}, {{"shape", Shape{-2}}, {"op_id", int64_t{0}}}, "random_bits: negative extent"});
  return s;
}

// ---- functions ----

Tensor finish(const Tensor& t, const TensorOptions& options) { return options.requires_grad ? t.requires_grad() : t; }

Tensor random_bits(const Shape& shape, Device device) {
  RandomKey key = next_random_key(device);
  return dispatch(random_bits_op, {&key.seed, &key.step},
                  with_device({{"shape", shape}, {"op_id", key.op_id}}, device));
}

// 16-bit floats are computed in f32 and rounded once.
DType wide(DType t) { return t == kFloat16 || t == kBFloat16 ? kFloat32 : t; }

// Uniform on [0, 1), with one random bit for each bit of the mantissa: the result is exact, so it cannot be rounded up
// to 1.
Tensor uniform_bits(const Shape& shape, DType dtype, Device device) {
  WEFT_CHECK(is_floating(dtype) && itemsize(dtype) > 1, "rand: dtype is ", dtype, "; need f32, f64, f16 or bf16");
  checked_numel(shape, "rand");
  auto part = [&](int bits, DType as) { return cast(shift_right_logical(random_bits(shape, device), 32 - bits), as); };
  if (dtype == kFloat64) {
    const Tensor high = mul(part(27, kFloat64), 0x1p-27);
    return add(high, mul(part(26, kFloat64), 0x1p-53));
  }
  const int bits = dtype == kFloat32 ? 24 : dtype == kFloat16 ? 11 : 8;
  return cast(mul(part(bits, kFloat32), std::ldexp(1.0, -bits)), dtype);
}

// The largest value of the dtype that is less than x, a finite number within the dtype's range.
double largest_below(double x, DType dtype) {
  const double below = std::nextafter(x, -std::numeric_limits<double>::infinity());
  if (dtype == kFloat64) return below;
  const int smallest = dtype == kFloat16 ? -13 : -125;  // exponent of frexp, for normal numbers
  int exponent = 0;
  std::frexp(below, &exponent);
  const double step = std::ldexp(1.0, std::max(exponent, smallest)) / static_cast<double>(whole_numbers(dtype).second);
  return std::ceil(x / step) * step - step;
}

// Whether uniform's largest number may be rounded to hi, with or without a rounding between product and sum.
bool rounds_to_end(double lo, double hi, double span, double part, DType dtype) {
  if (lo == hi) return false;
  if (dtype == kFloat64) {
    const double u = 1 - 0x1p-53;
    return std::max(u * span + lo * part, std::fma(u, span, lo * part)) / part >= hi;
  }
  if (dtype != kFloat32) return true;
  const float u = 1 - 0x1p-24f, s = static_cast<float>(span), l = static_cast<float>(lo * part);
  return std::max(u * s + l, std::fma(u, s, l)) / part >= hi;
}

Tensor normal_bits(const Shape& shape, DType dtype, Device device) {
  WEFT_CHECK(is_floating(dtype) && itemsize(dtype) > 1, "randn: dtype is ", dtype, "; need f32, f64, f16 or bf16");
  const Tensor u = sub(1.0, uniform_bits(shape, wide(dtype), device));  // (0, 1]: its logarithm is finite
  const Tensor angle = mul(uniform_bits(shape, wide(dtype), device), 2 * 3.14159265358979323846);
  return cast(mul(sqrt(mul(log(u), -2.0)), cos(angle)), dtype);
}

Tensor filled(const TensorType& type, double value, int64_t integer, bool exact, SourceLine line) {
  LineScope here(line);
  const int64_t n = checked_numel(type.shape, "full");
  exact = exact && !is_floating(type.dtype);
  if (thread_state.capture || type.device.type != DeviceType::kCpu) {
    const Tensor v =
        exact ? constant(integer, type.dtype, type.device, line) : constant(value, type.dtype, type.device, line);
    const Tensor all = broadcast_to(v, type.shape, line);
    return thread_state.capture ? all : contiguous(all);  // a tensor with its own elements, as on the CPU
  }
  Tensor t = Tensor::empty(type);
  if (n == 0) return t;
  const StridedView view{t.get().storage->data(), type.dtype, type.shape, t.get().strides};
  if (exact) {
    kernels::fill_int(view, integer);
  } else {
    kernels::fill(view, value);
  }
  return t;
}

// The number of integers start, start + step, ... before end; the largest int64 if there are more.
int64_t range_length(int64_t start, int64_t end, int64_t step) {
  if (step > 0 ? start >= end : start <= end) return 0;
  const auto from = static_cast<uint64_t>(start), to = static_cast<uint64_t>(end), by = static_cast<uint64_t>(step);
  const uint64_t before = step > 0 ? (to - from - 1) / by : (from - to - 1) / (0 - by);
  return static_cast<int64_t>(std::min<uint64_t>(before, std::numeric_limits<int64_t>::max() - 1)) + 1;
}

Tensor range(const Arg& start, const Arg& end, const Arg& step, const TensorOptions& options) {
  LineScope here(start.line());
  for (const Arg* a : {&start, &end, &step})
    WEFT_CHECK(!a->is_tensor(), "arange: a bound is a tensor; need numbers, for the result's shape depends on them");
  const bool exact = start.kind() != Arg::kFloat && end.kind() != Arg::kFloat && step.kind() != Arg::kFloat;
  WEFT_CHECK(step.number() != 0, "arange: step is 0; need another");
  const double extent = (end.number() - start.number()) / step.number();
  WEFT_CHECK(std::isfinite(extent), "arange: bounds ", start.number(), " and ", end.number(), " with step ",
             step.number(), " are not finite; need finite numbers");
  const int64_t n = exact         ? range_length(start.integer(), end.integer(), step.integer())
                    : extent <= 0 ? 0
                                  : static_cast<int64_t>(std::min(std::ceil(extent), 0x1p62));
  if (n > 0) {
    check_fits("arange", start, options.dtype);
    if (exact) {
      const int64_t last = saturating_add(start.integer(), saturating_mul(n - 1, step.integer()));
      check_fits("arange", last, options.dtype);
    } else {
      check_fits("arange", start.number() + static_cast<double>(n - 1) * step.number(), options.dtype);
    }
  }
  AttrValue from = start.number(), by = step.number();
  if (exact) from = start.integer(), by = step.integer();
  return finish(
      dispatch(iota_op, {},
               with_device({{"size", n}, {"dtype", options.dtype}, {"start", from}, {"step", by}}, options.device),
               start.line()),
      options);
}

DType range_dtype(std::initializer_list<const Arg*> args) {
  for (const Arg* a : args)
    if (a->kind() == Arg::kFloat) return kFloat32;
  return kInt64;
}

}  // namespace

const Node* constant_behind(const Graph& g, Value v, bool cast) {
  const Node* n = &g.node(v);
  while (n->op->placing == Placing::kReshape || is_broadcast(*n) || (cast && n->op == &cast_op))
    n = &g.node(n->inputs[0]);
  return n->op == &constant_op ? n : nullptr;
}

const OpDef constant_op = {
    .name = "constant",
    .doc = "The number {value} as a scalar of {dtype}.",
    .traits = kFromAttrs | kNotDifferentiable,
    .num_inputs = 0,
    .flops_per_point = 0,
    .infer = infer_constant,
    .dims = dims_pointwise,
    .kernel = run_constant,
    .samples = samples_constant,
};
const OpDef iota_op = {
    .name = "iota",
    .doc = "start + i * step for i below {size}, computed in f64 (integers: i64).",
    .traits = kFromAttrs | kNotDifferentiable,
    .num_inputs = 0,
    .infer = infer_iota,
    .dims = dims_pointwise,
    .kernel = run_iota,
    .samples = samples_iota,
};
const OpDef random_bits_op = {
    .name = "random_bits",
    .doc = "Words of Philox4x32-10 (Salmon et al. 2011) keyed by seed, step and {op_id}, counted by flat position.",
    .traits = kRandom | kNotDifferentiable,
    .num_inputs = 2,
    .flops_per_point = 30,
    .infer = infer_random_bits,
    .dims = dims_pointwise,
    .kernel = run_random_bits,
    .samples = samples_random_bits,
};

const OpDef random_bits_at_op = {
    .name = "random_bits_at",
    .doc = "The words of random_bits at base + i0 strides[0] + i1 strides[1] + ..., for a shard.",
    .traits = kRandom | kNotDifferentiable,
    .num_inputs = 3,
    .flops_per_point = 30,
    .infer = infer_random_bits_at,
    .dims = dims_pointwise,
    .kernel = run_random_bits_at,
    .samples = samples_random_bits_at,
};

std::span<const OpDef* const> creation_ops() {
  static const OpDef* const all[] = {&constant_op, &iota_op, &random_bits_op, &random_bits_at_op};
  return all;
}

namespace internal {
const Tensor& tensor_of(const Arg& x, const char* op) {
  WEFT_CHECK(x.is_tensor(), op, ": an operand is a number; need a tensor");
  WEFT_CHECK_AS(kFailedPrecondition, x.tensor().defined(), op,
                ": an operand is an undefined tensor; need one with a value");
  return x.tensor();
}
Tensor full_of(const TensorType& type, double value) { return filled(type, value, 0, false, {}); }
}  // namespace internal

Tensor constant(double value, DType dtype, Device device, SourceLine line) {
  return dispatch(constant_op, {}, with_device({{"value", value}, {"dtype", dtype}}, device), line);
}
Tensor constant(int64_t value, DType dtype, Device device, SourceLine line) {
  return dispatch(constant_op, {}, with_device({{"value", value}, {"dtype", dtype}}, device), line);
}

Tensor full(const Shape& shape, const Arg& value, const TensorOptions& options) {
  LineScope here(value.line());
  if (!value.is_tensor()) {
    check_fits("full", value, options.dtype);
    return finish(filled({options.dtype, options.device, shape}, value.number(), value.integer(),
                         value.kind() != Arg::kFloat, value.line()),
                  options);
  }
  const Tensor& v = tensor_of(value, "full");
  WEFT_CHECK(v.dim() == 0, "full: the value is ", v.type(), "; need a number or a 0-d tensor");
  return finish(broadcast_to(cast(v, options.dtype), shape), options);
}

Tensor zeros(const Shape& shape, const TensorOptions& options, std::source_location loc) {
  return finish(filled({options.dtype, options.device, shape}, 0, 0, true, loc), options);
}
Tensor ones(const Shape& shape, const TensorOptions& options, std::source_location loc) {
  return finish(filled({options.dtype, options.device, shape}, 1, 1, true, loc), options);
}
Tensor empty(const Shape& shape, const TensorOptions& options, std::source_location loc) {
  LineScope here(loc);
  if (thread_state.capture) return zeros(shape, options, loc);
  return finish(Tensor::empty({options.dtype, options.device, shape}), options);
}
Tensor empty_like(const Arg& x) {
  const FirstOperand like(x, "empty_like");
  return empty(like.shape(), {.dtype = like.dtype(), .device = like.device()});
}
Tensor full_like(const Arg& x, const Arg& value) {
  const FirstOperand like(x, "full_like");
  return full(like.shape(), value, {.dtype = like.dtype(), .device = like.device()});
}
Tensor zeros_like(const Arg& x) {
  const FirstOperand like(x, "zeros_like");
  return filled({like.dtype(), like.device(), like.shape()}, 0, 0, true, x.line());
}
Tensor ones_like(const Arg& x) {
  const FirstOperand like(x, "ones_like");
  return filled({like.dtype(), like.device(), like.shape()}, 1, 1, true, x.line());
}

Tensor arange(const Arg& end) {
  LineScope here(end.line());
  return range(0, end, 1, {.dtype = range_dtype({&end})});
}
Tensor arange(const Arg& end, const TensorOptions& options) {
  LineScope here(end.line());
  return range(0, end, 1, options);
}
Tensor arange(const Arg& start, const Arg& end, const Arg& step) {
  return range(start, end, step, {.dtype = range_dtype({&start, &end, &step})});
}
Tensor arange(const Arg& start, const Arg& end, const TensorOptions& options) { return range(start, end, 1, options); }
Tensor arange(const Arg& start, const Arg& end, const Arg& step, const TensorOptions& options) {
  return range(start, end, step, options);
}

Tensor eye(int64_t n, int64_t m, const TensorOptions& options, std::source_location loc) {
  LineScope here(loc);
  WEFT_CHECK(m >= -1, "eye: got ", n, " rows and ", m, " columns; need 0 or more");
  if (m == -1) m = n;
  checked_numel({n, m}, "eye");
  const TensorOptions index{.dtype = kInt64, .device = options.device};
  const Tensor rows = arange(n, index).unsqueeze(1), columns = arange(m, index).unsqueeze(0);
  return finish(cast(eq(rows, columns), options.dtype), options);
}

Tensor rand(const Shape& shape, const TensorOptions& options, std::source_location loc) {
  LineScope here(loc);
  return finish(uniform_bits(shape, options.dtype, options.device), options);
}
Tensor randn(const Shape& shape, const TensorOptions& options, std::source_location loc) {
  LineScope here(loc);
  return finish(normal_bits(shape, options.dtype, options.device), options);
}
Tensor uniform(const Shape& shape, double lo, double hi, const TensorOptions& options, std::source_location loc) {
  LineScope here(loc);
  WEFT_CHECK(lo <= hi && std::isfinite(lo) && std::isfinite(hi), "uniform: range [", lo, ", ", hi,
             "); need finite numbers, in order");
  for (double end : {lo, hi}) check_fits("uniform", end, options.dtype);
  const DType type = wide(options.dtype);
  // Half of each number, if hi - lo is too large for the dtype.
  const double largest = type == kFloat64 ? std::numeric_limits<double>::max() : std::numeric_limits<float>::max();
  const double part = hi - lo > largest ? 0.5 : 1;
  const double span = hi * part - lo * part;
  Tensor y = add(mul(uniform_bits(shape, type, options.device), span), lo * part);
  if (part < 1) y = mul(y, 2.0);
  if (rounds_to_end(lo, hi, span, part, options.dtype)) y = minimum(y, largest_below(hi, options.dtype));
  return finish(cast(y, options.dtype), options);
}
Tensor normal(const Shape& shape, double mean, double std, const TensorOptions& options, std::source_location loc) {
  LineScope here(loc);
  WEFT_CHECK(std >= 0, "normal: std is ", std, "; need a number >= 0");
  for (double v : {mean, std}) check_fits("normal", v, options.dtype);
  return finish(cast(add(mul(normal_bits(shape, wide(options.dtype), options.device), std), mean), options.dtype),
                options);
}
Tensor randint(int64_t low, int64_t high, const Shape& shape, const TensorOptions& options, std::source_location loc) {
  LineScope here(loc);
  WEFT_CHECK(low < high && static_cast<uint64_t>(high) - static_cast<uint64_t>(low) <= uint64_t{1} << 31,
             "randint: range [", low, ", ", high, "); need 1 to 2^31 integers");
  const auto [least, most] = whole_numbers(options.dtype);
  WEFT_CHECK(low >= least && high - 1 <= most, "randint: ", options.dtype, " does not have all integers from ", low,
             " to ", high - 1, "; need a range within ", least, " to ", most, ", or another dtype");
  // The high word of (a random 32-bit word times the number of integers).
  const Tensor word = bit_and(cast(random_bits(shape, options.device), kInt64), int64_t{0xffffffff});
  return finish(cast(add(shift_right(mul(word, high - low), 32), low), options.dtype), options);
}
Tensor rand_like(const Arg& x) {
  const FirstOperand like(x, "rand_like");
  return rand(like.shape(), {.dtype = like.dtype(), .device = like.device()});
}
Tensor randn_like(const Arg& x) {
  const FirstOperand like(x, "randn_like");
  return randn(like.shape(), {.dtype = like.dtype(), .device = like.device()});
}
Tensor randint_like(const Arg& x, int64_t low, int64_t high) {
  const FirstOperand like(x, "randint_like");
  return randint(low, high, like.shape(), {.dtype = like.dtype(), .device = like.device()});
}
Tensor randint_like(const Arg& x, int64_t high) {
  LineScope here(x.line());
  return randint_like(x, 0, high);
}
Tensor bernoulli(const Arg& p) {
  const FirstOperand probability(p, "bernoulli");
  const DType type = probability.dtype();
  // In a capture, ops on values from outside are nodes too.
  if (!thread_state.capture && type != kBool && probability.numel() > 0 &&
      probability.device().type == DeviceType::kCpu) {
    NoGrad guard;
    const double least = amin(probability).item<double>(), most = amax(probability).item<double>();
    WEFT_CHECK(least >= 0 && most <= 1, "bernoulli: probabilities are from ", least, " to ", most,
               "; need numbers from 0 to 1");
  }
  return cast(lt(uniform_bits(probability.shape(), wide(type), probability.device()), cast(probability, wide(type))),
              type);
}

void advance_random_step() {
  StepScope* scope = thread_state.step;
  for (Device d : scope ? scope->used_on : std::vector{Device::cpu()}) {
    if (d.type == DeviceType::kMeta && !thread_state.capture) continue;  // it has no values
    const Buffer& step = default_generator(d).step;
    step.set(add(step.value(), 1));
  }
}

}  // namespace weft
