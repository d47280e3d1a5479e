// Front end of the elementwise ops: promotion, broadcasting, and a short path to the kernel for small eager calls.
#include "ops/core/pointwise.h"

#include "framework/autodiff/grad.h"
#include "framework/base/tracer.h"
#include "framework/dispatch/dispatch.h"
#include "framework/dispatch/tape.h"
#include "ops/core/creation.h"
#include "ops/core/fits.h"
#include "ops/core/indexing/view.h"
#include "ops/core/number.h"
#include "ops/core/promotion.h"
#include "ops/kernels/kernels.h"

namespace weft {

Tensor& Tensor::operator+=(const Arg& y) & { return *this = add(y, y.loc()); }
Tensor& Tensor::operator-=(const Arg& y) & { return *this = sub(y, y.loc()); }
Tensor& Tensor::operator*=(const Arg& y) & { return *this = mul(y, y.loc()); }
Tensor& Tensor::operator/=(const Arg& y) & { return *this = div(y, y.loc()); }

namespace internal {
const OpDef* pointwise_records();
}

namespace {

using internal::LineScope;
using internal::thread_state;
using kernels::Pw;
using kernels::PwTypes;

// Below this many elements, a call runs on the calling thread and does not check strides or use the pool.
constexpr int64_t kSmall = 4096;

Tensor number(const Arg& a, DType dtype, Device device) {
  const bool exact = a.kind() != Arg::kFloat;
  if (thread_state.capture || device.type != DeviceType::kCpu)
    return exact && !is_floating(dtype) ? constant(a.integer(), dtype, device, a.line())
                                        : constant(a.number(), dtype, device, a.line());
  Tensor t = Tensor::empty({dtype, device, {}});
  StridedView v{t.get().storage->data(), dtype, {}, {}};
  if (exact && !is_floating(dtype)) {
    kernels::fill_int(v, a.integer());
  } else if (dtype == kFloat32) {
    *static_cast<float*>(v.data) = static_cast<float>(a.number());
  } else {
    kernels::fill(v, a.number());
  }
  return t;
}

// A number as an operand of `op`. Bit operations take an integer's low bits. A floating-point number is rounded like a
// result, to infinity if it is large, unless `op` returns its operand unchanged.
Tensor operand(Pw op, const Arg& a, DType dtype, Device device) {
  const kernels::PwInfo& info = kernels::pointwise_info(op);
  if (is_floating(dtype) ? op == Pw::where : info.types != PwTypes::BITS) internal::check_fits(info.name, a, dtype);
  return number(a, dtype, device);
}

/// Runs an op on operands that already have one dtype, and equal shapes or shape [].
Tensor finish(Pw op, std::span<const Tensor* const> in, DType result, const Shape& shape, SourceLine line) {
  const OpDef& record = internal::pointwise_records()[static_cast<int>(op)];
  const TensorImpl& lead = in.back()->get();
  const TensorType type{result, lead.type.device, shape};
  // A traced op takes the long path, which records its event.
  if (thread_state.capture || lead.type.device.type != DeviceType::kCpu || internal::traced(TraceEvent::kOp))
    return dispatch_pointwise(record, in, type, line);
  const int64_t n = shape.numel();
  const void* data[3];
  uint32_t scalars = 0;
  bool plain = n <= kSmall;
  for (size_t i = 0; i < in.size() && plain; ++i) {
    const TensorImpl& t = in[i]->get();
    if (t.trace || !t.storage || !(t.type.device == lead.type.device)) {
      plain = false;
    } else if (t.type.shape.empty() && !shape.empty()) {
      scalars |= 1u << i;
    } else if (!is_contiguous(t.type.shape, t.strides)) {
      plain = false;
    }
    if (plain) data[i] = static_cast<const char*>(t.storage->data()) + t.offset;
  }
  kernels::PwFn fn = plain ? kernels::pointwise_contiguous_fn(op, lead.type.dtype) : nullptr;
  if (!fn) return dispatch_pointwise(record, in, type, line);
  Tensor out = Tensor::empty(type);
  if (n > 0 && fn(data, out.get().storage->data(), n, scalars)) [[unlikely]] {
    LineScope here(line);
    kernels::pointwise_fail(op);
  }
  if (should_record(record, in))
    weft::record(record, in, {}, internal::origin.line ? *internal::origin.line : line, {&out, 1});
  return out;
}

// The number in f64 (number.h); null if `t` is no number of a compiled call.
const Tensor* wide_number(const Tensor& t) {
  const internal::NumberScope* numbers = internal::thread_state.numbers;
  return numbers && t.defined() ? numbers->wide(t) : nullptr;
}

// `narrow`, the result of `op` on `args`. If these are all numbers, so is the result: it is computed in f64, too.
template <class Op>
Tensor with_wide(Tensor narrow, Op op, std::initializer_list<const Arg*> args) {
  internal::NumberScope* numbers = internal::thread_state.numbers;
  if (!numbers || narrow.dtype() != kFloat32 || narrow.dim() > 0) return narrow;
  std::vector<Tensor> wide;
  bool any = false;
  for (const Arg* a : args) {
    const Tensor* n = a->is_tensor() ? wide_number(a->tensor()) : nullptr;
    if (a->is_tensor() && !n) return narrow;
    any |= n != nullptr;
    wide.push_back(n ? *n : number(*a, kFloat64, narrow.device()));
  }
  if (!any) return narrow;
  LineScope here((*args.begin())->line());
  numbers->add(narrow, op(std::span<const Tensor>(wide)));
  return narrow;
}

Tensor as(const Tensor& t, DType dtype, SourceLine line) {
  if (dtype == kFloat64)
    if (const Tensor* wide = wide_number(t)) return *wide;
  return t.dtype() == dtype ? t : dispatch(cast_op, {&t}, {{"dtype", dtype}}, line);
}

void check_type(Pw op, DType dtype) {
  const kernels::PwInfo& info = kernels::pointwise_info(op);
  WEFT_CHECK(kernels::pointwise_takes(op, dtype), info.name, ": does not support ", dtype,
             info.types == PwTypes::INT || info.types == PwTypes::BITS ? "; need an integer dtype"
                                                                       : "; convert with to(f32) first");
}

DType computed_in(Pw op, DType t) {
  if (kernels::pointwise_info(op).types == PwTypes::FLOAT && !is_floating(t)) return kFloat32;
  return t;
}

// Whether Autocast gives `op` this operand in f32.
bool becomes_f32(Pw op, const Arg& x) {
  return thread_state.autocast && internal::pointwise_records()[static_cast<int>(op)].is(kWantsF32) && x.is_tensor() &&
         x.tensor().defined() && is_16bit(x.tensor().get().type.dtype);
}
Tensor in_f32(const Arg& x) { return as(x.tensor(), kFloat32, x.line()); }

// Whether `op` multiplies or divides a 16-bit tensor by the number `n` in f32, as PyTorch does. Rounded to 16 bits, the
// number would lose digits, or become 0 or infinite. Other ops round it.
bool scales_in_f32(Pw op, const Arg& x, const Arg& n) {
  if (op != Pw::mul && op != Pw::div && op != Pw::floor_divide) return false;
  if (!x.is_tensor() || !x.tensor().defined()) return false;
  const DType dtype = x.tensor().get().type.dtype;
  if (!is_16bit(dtype)) return false;
  if (n.is_tensor()) return wide_number(n.tensor()) != nullptr;
  const auto value = static_cast<float>(n.number());
  return value != (dtype == kFloat16 ? float(float16(value)) : float(bfloat16(value)));
}

Tensor unary(Pw op, const Arg& x) {
  if (becomes_f32(op, x)) [[unlikely]]
    return unary(op, Arg(in_f32(x), x.loc()));
  const kernels::PwInfo& info = kernels::pointwise_info(op);
  if (x.is_tensor() && x.tensor().defined() && kernels::pointwise_takes(op, x.tensor().get().type.dtype)) {
    const TensorType& type = x.tensor().get().type;
    const Tensor* operands[] = {&x.tensor()};
    return finish(op, operands, info.bool_result ? kBool : type.dtype, type.shape, x.line());
  }
  LineScope here(x.line());
  const Tensor made = x.is_tensor() ? Tensor() : number(x, result_type({{&x}}), Device::cpu());
  const Tensor& t = x.is_tensor() ? x.tensor() : made;
  WEFT_CHECK_AS(kFailedPrecondition, t.defined(), info.name, ": operand is an undefined tensor; need one with a value");
  const DType dtype = computed_in(op, t.dtype());
  check_type(op, dtype);
  const Tensor in = as(t, dtype, x.line());
  const Tensor* operands[] = {&in};
  return finish(op, operands, info.bool_result ? kBool : dtype, in.get().type.shape, x.line());
}

Tensor binary(Pw op, const Arg& a, const Arg& b);

// Integers to the power of integers, as integers.
Tensor integer_pow(const Arg& a, const Arg& b, DType dtype, Device device) {
  const SourceLine line = a.line();
  const auto to = [&](const Arg& x, DType t) { return x.is_tensor() ? as(x.tensor(), t, line) : number(x, t, device); };
  if (b.is_tensor()) {
    // From 64 on, all powers overflow except the powers of 0, 1 and -1, for which the parity decides.
    const Tensor e = to(b, dtype), parity = bit_and(e, 1), base = to(a, dtype);
    const Tensor left = where(gt(e, 63), add(parity, 62), where(lt(e, 0), parity, e));
    Tensor square = base, power = internal::full_of(e.type(), 1);
    for (int64_t bit = 1; bit < 64; bit *= 2) {
      power = where(ne(bit_and(left, bit), 0), mul(power, square), power);
      if (bit < 32) square = mul(square, square);
    }
    return where(logical_and(lt(e, 0), ne(mul(base, base), 1)), 0, power);
  }
  WEFT_CHECK(b.integer() >= 0, "pow: an integer to the power of ", b.integer(),
             "; need an exponent of 0 or more, or convert with to(f32) first");
  Tensor square = to(a, dtype), power;
  for (int64_t left = b.integer(); left > 0; left >>= 1) {
    if (left & 1) power = power.defined() ? binary(Pw::mul, power, square) : square;
    if (left > 1) square = binary(Pw::mul, square, square);
  }
  return power.defined() ? power : internal::full_of(square.type(), 1);
}

Tensor binary(Pw op, const Arg& a, const Arg& b) {
  if (becomes_f32(op, a)) [[unlikely]]
    return binary(op, Arg(in_f32(a), a.loc()), b);
  if (becomes_f32(op, b)) [[unlikely]]
    return binary(op, a, Arg(in_f32(b), b.loc()));
  const SourceLine line = a.line();
  if (scales_in_f32(op, a, b)) return as(binary(op, Arg(in_f32(a), a.loc()), b), a.tensor().dtype(), line);
  if (op == Pw::mul && scales_in_f32(op, b, a))
    return as(binary(op, a, Arg(in_f32(b), b.loc())), b.tensor().dtype(), line);
  const kernels::PwInfo& info = kernels::pointwise_info(op);
  if (op == Pw::pow && a.is_tensor() && !b.is_tensor()) {  // the exact forms, as in PyTorch
    const bool converts = b.kind() == Arg::kFloat && a.tensor().defined() && !is_floating(a.tensor().dtype());
    if (b.number() == 2) return converts ? unary(Pw::square, as(a.tensor(), kFloat32, line)) : unary(Pw::square, a);
    if (b.number() == 0.5) return unary(Pw::sqrt, a);
    if (b.number() == -1 && a.tensor().defined() && is_floating(a.tensor().dtype())) return unary(Pw::reciprocal, a);
  }
  if (a.is_tensor() && b.is_tensor() && a.tensor().defined() && b.tensor().defined()) {
    const TensorImpl &ta = a.tensor().get(), &tb = b.tensor().get();
    if (ta.type.dtype == tb.type.dtype && ta.type.shape == tb.type.shape &&
        kernels::pointwise_takes(op, ta.type.dtype)) {
      const Tensor* operands[] = {&a.tensor(), &b.tensor()};
      return finish(op, operands, info.bool_result ? kBool : ta.type.dtype, ta.type.shape, line);
    }
  }
  LineScope here(line);
  const Arg* args[] = {&a, &b};
  Device device = Device::cpu();
  for (const Arg* x : args) {
    if (!x->is_tensor()) continue;
    WEFT_CHECK_AS(kFailedPrecondition, x->tensor().defined(), info.name,
                  ": an operand is an undefined tensor; need one with a value");
    device = x->tensor().device();
  }
  const DType common = result_type(args), dtype = computed_in(op, common);
  if (op == Pw::pow && is_integral(common)) return integer_pow(a, b, common, device);
  // PyTorch's arithmetic of bools.
  if (dtype == kBool && op == Pw::add) return binary(Pw::bit_or, a, b);
  if (dtype == kBool && op == Pw::mul) return binary(Pw::bit_and, a, b);
  if (dtype == kBool && op == Pw::maximum) return binary(Pw::bit_or, a, b);
  if (dtype == kBool && op == Pw::minimum) return binary(Pw::bit_and, a, b);
  check_type(op, dtype);
  Tensor in[2];
  for (int i = 0; i < 2; ++i)
    in[i] = args[i]->is_tensor() ? as(args[i]->tensor(), dtype, line) : operand(op, *args[i], dtype, device);
  Shape shape = in[0].shape().empty() ? in[1].shape() : in[0].shape();
  if (!in[0].shape().empty() && !in[1].shape().empty() && !(in[0].shape() == in[1].shape())) {
    shape = broadcast_shapes(in[0].shape(), in[1].shape(), info.name);
    for (Tensor& t : in) t = broadcast_to(t, shape, line);
  }
  const Tensor* operands[] = {&in[0], &in[1]};
  return finish(op, operands, info.bool_result ? kBool : dtype, shape, line);
}

Tensor ternary(Pw op, const Arg& c, const Arg& a, const Arg& b) {
  const SourceLine line = c.line();
  LineScope here(line);
  const kernels::PwInfo& info = kernels::pointwise_info(op);
  const Arg* args[] = {&a, &b};
  WEFT_CHECK(c.is_tensor(), info.name, ": the condition is a number; need a bool tensor");
  WEFT_CHECK_AS(kFailedPrecondition, c.tensor().defined(), info.name,
                ": the condition is an undefined tensor; need one with a value");
  WEFT_CHECK(c.tensor().dtype() == kBool, info.name, ": the condition is ", c.tensor().dtype(),
             "; need bool: compare it first, as in x > 0");
  const DType dtype = result_type(args);
  Tensor in[3] = {c.tensor(), {}, {}};
  Shape shape = in[0].shape();
  for (int i = 0; i < 2; ++i) {
    in[i + 1] =
        args[i]->is_tensor() ? as(args[i]->tensor(), dtype, line) : operand(op, *args[i], dtype, c.tensor().device());
    const Shape& s = in[i + 1].shape();
    if (shape.empty()) {
      shape = s;
    } else if (!s.empty()) {
      shape = broadcast_shapes(shape, s, info.name);
    }
  }
  for (Tensor& t : in)
    if (!t.shape().empty() && !(t.shape() == shape)) t = broadcast_to(t, shape, line);
  const Tensor* operands[] = {&in[0], &in[1], &in[2]};
  return finish(op, operands, dtype, shape, line);
}

}  // namespace

#define WEFT_UNARY(name, ...)                                                                                    \
  Tensor name(const Arg& x) {                                                                                    \
    return with_wide(unary(Pw::name, x), [](std::span<const Tensor> w) { return unary(Pw::name, w[0]); }, {&x}); \
  }
#define WEFT_TEST(name, ...) \
  Tensor name(const Arg& x) { return unary(Pw::name, x); }
#define WEFT_BINARY(name, ...)                                                                                       \
  Tensor name(const Arg& a, const Arg& b) {                                                                          \
    return with_wide(binary(Pw::name, a, b), [](std::span<const Tensor> w) { return binary(Pw::name, w[0], w[1]); }, \
                     {&a, &b});                                                                                      \
  }
#define WEFT_COMPARE(name, ...) \
  Tensor name(const Arg& a, const Arg& b) { return binary(Pw::name, a, b); }
#define WEFT_TERNARY(name, ...) \
  Tensor name(const Arg& c, const Arg& a, const Arg& b) { return ternary(Pw::name, c, a, b); }
#include "ops/kernels/pointwise.inc"

Tensor cast(const Arg& x, DType dtype) {
  if (!x.is_tensor()) return number(x, dtype, Device::cpu());
  return as(x.tensor(), dtype, x.line());
}

Tensor internal::logical_not_there(const Tensor& x) {
  SourceLine line;
  if (Capture* capture = thread_state.capture; capture && x.defined() && x.is_traced())
    line = capture->graph().node(capture->value_of(x).node).line;
  LineScope there(line);
  return logical_not(Arg(x, {}));
}

Tensor Tensor::to(DType dtype, Loc loc) const { return as(*this, dtype, SourceLine(loc)); }

Tensor Tensor::to(Device device, Loc loc) const {
  LineScope here(loc);
  if (device == this->device()) return *this;
  if (device.type == DeviceType::kMeta) return Tensor::empty({dtype(), device, shape()});
  require_concrete(*this, "to", loc);
  Tensor out = Tensor::empty({dtype(), device, shape()});
  StridedView from = view_for_kernel(loc), to = out.view_for_kernel();
  if (DeviceMemory* memory = device_memory(device.type == DeviceType::kCpu ? this->device().type : device.type)) {
    memory->copy(from, this->device(), to, device);
  } else {
    kernels::cast_copy(from, to);
  }
  return out;
}

namespace internal {
// Declared in number.h.
const Tensor* NumberScope::wide(const Tensor& t) const {
  const TensorImpl& i = t.get();
  for (const auto& [narrow, wide] : numbers_) {
    const TensorImpl& own = narrow.get();
    if (&own == &i || (i.trace && own.trace == i.trace && own.node == i.node && own.index == i.index)) return &wide;
  }
  return outer_ ? outer_->wide(t) : nullptr;
}

Tensor number_of(const Tensor& wide) {
  const Tensor narrow = dispatch(cast_op, {&wide}, {{"dtype", kFloat32}}, {});
  thread_state.numbers->add(narrow, wide);
  return narrow;
}

Tensor accumulate(const Tensor& a, const Tensor& b) { return add(a, b); }
Tensor select(const Tensor& condition, const Tensor& a, const Tensor& b) { return where(condition, a, b); }
}  // namespace internal

}  // namespace weft
