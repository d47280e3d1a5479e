// Creates tensors: constants, ranges, random numbers. Random values depend only on seed, step and the op's ordinal.
#pragma once
#include <concepts>
#include <span>

#include "framework/dispatch/arg.h"
#include "framework/dispatch/state/generator.h"
#include "framework/ir/op_def.h"

namespace weft {

/// A tensor filled with a number or with the value of a 0-d tensor, converted to options.dtype.
Tensor full(const Shape& shape, const Arg& value, const TensorOptions& options = {});
Tensor zeros(const Shape& shape, const TensorOptions& options = {},
             std::source_location loc = std::source_location::current());
Tensor ones(const Shape& shape, const TensorOptions& options = {},
            std::source_location loc = std::source_location::current());
/// Values unspecified; zeros under capture.
Tensor empty(const Shape& shape, const TensorOptions& options = {},
             std::source_location loc = std::source_location::current());
Tensor empty_like(const Arg& x);
/// Tensor::from_blob with PyTorch's arguments: the memory stays the caller's.
inline Tensor from_blob(void* data, const Shape& shape, const TensorOptions& options = {},
                        std::source_location loc = std::source_location::current()) {
  return Tensor::from_blob(data, shape, options.dtype, {}, loc);
}
inline Tensor from_blob(void* data, const Shape& shape, DType dtype,
                        std::source_location loc = std::source_location::current()) {
  return Tensor::from_blob(data, shape, dtype, {}, loc);
}
/// Same shape, dtype and device as x.
Tensor full_like(const Arg& x, const Arg& value);
Tensor zeros_like(const Arg& x);
Tensor ones_like(const Arg& x);

/// start, start + step, ... below end (above end, if step < 0). Without options: i64 if all three are integers,
/// otherwise f32.
Tensor arange(const Arg& end);
Tensor arange(const Arg& end, const TensorOptions& options);
Tensor arange(const Arg& start, const Arg& end, const Arg& step = 1);
Tensor arange(const Arg& start, const Arg& end, const TensorOptions& options);
Tensor arange(const Arg& start, const Arg& end, const Arg& step, const TensorOptions& options);
/// The n x m identity matrix; m = -1 means n.
Tensor eye(int64_t n, int64_t m = -1, const TensorOptions& options = {},
           std::source_location loc = std::source_location::current());
inline Tensor eye(int64_t n, const TensorOptions& options, std::source_location loc = std::source_location::current()) {
  return eye(n, -1, options, loc);
}

/// Uniform on [0, 1), with one random bit for each bit of the dtype's mantissa (f32 24, f64 53, f16 11, bf16 8).
Tensor rand(const Shape& shape, const TensorOptions& options = {},
            std::source_location loc = std::source_location::current());
/// Normal with mean 0 and variance 1, by Box-Muller (1958).
Tensor randn(const Shape& shape, const TensorOptions& options = {},
             std::source_location loc = std::source_location::current());
/// Uniform on [lo, hi).
Tensor uniform(const Shape& shape, double lo, double hi, const TensorOptions& options = {},
               std::source_location loc = std::source_location::current());
Tensor normal(const Shape& shape, double mean, double std, const TensorOptions& options = {},
              std::source_location loc = std::source_location::current());
/// Integers in [low, high), at most 2^31 different ones; i64 unless options give another dtype.
Tensor randint(int64_t low, int64_t high, const Shape& shape, const TensorOptions& options = {.dtype = kInt64},
               std::source_location loc = std::source_location::current());
// PyTorch's dtype in place of the options: zeros({2}, kInt64).
#define WEFT_DTYPE(name, parameters, ...)                                                                  \
  template <std::same_as<DType> D>                                                                         \
  Tensor name(WEFT_LIST parameters, D dtype, std::source_location loc = std::source_location::current()) { \
    internal::LineScope line(loc);                                                                         \
    return name(__VA_ARGS__, TensorOptions{.dtype = dtype});                                               \
  }
#define WEFT_LIST(...) __VA_ARGS__
WEFT_DTYPE(full, (const Shape& shape, const Arg& value), shape, value)
WEFT_DTYPE(arange, (const Arg& end), end)
WEFT_DTYPE(arange, (const Arg& start, const Arg& end), start, end)
WEFT_DTYPE(arange, (const Arg& start, const Arg& end, const Arg& step), start, end, step)
WEFT_DTYPE(eye, (int64_t n), n)
WEFT_DTYPE(randint, (int64_t low, int64_t high, const Shape& shape), low, high, shape)
// The shape as two to four numbers: randn(2, 3).
#define WEFT_SIZES(name)                                                                                            \
  WEFT_DTYPE(name, (const Shape& shape), shape)                                                                     \
  template <std::integral B>                                                                                        \
  Tensor name(int64_t a, B b, const TensorOptions& options = {},                                                    \
              std::source_location loc = std::source_location::current()) {                                         \
    return name(Shape{a, static_cast<int64_t>(b)}, options, loc);                                                   \
  }                                                                                                                 \
  template <std::integral B, std::integral C>                                                                       \
  Tensor name(int64_t a, B b, C c, const TensorOptions& options = {},                                               \
              std::source_location loc = std::source_location::current()) {                                         \
    return name(Shape{a, static_cast<int64_t>(b), static_cast<int64_t>(c)}, options, loc);                          \
  }                                                                                                                 \
  template <std::integral B, std::integral C, std::integral D>                                                      \
  Tensor name(int64_t a, B b, C c, D d, const TensorOptions& options = {},                                          \
              std::source_location loc = std::source_location::current()) {                                         \
    return name(Shape{a, static_cast<int64_t>(b), static_cast<int64_t>(c), static_cast<int64_t>(d)}, options, loc); \
  }
WEFT_SIZES(zeros)
WEFT_SIZES(ones)
WEFT_SIZES(empty)
WEFT_SIZES(rand)
WEFT_SIZES(randn)
#undef WEFT_SIZES
#undef WEFT_DTYPE
#undef WEFT_LIST
Tensor rand_like(const Arg& x);
Tensor randn_like(const Arg& x);
/// Integers in [low, high), in x's dtype.
Tensor randint_like(const Arg& x, int64_t low, int64_t high);
/// Integers in [0, high), in x's dtype.
Tensor randint_like(const Arg& x, int64_t high);
/// 1 with probability p[i], otherwise 0; p's shape and dtype.
Tensor bernoulli(const Arg& p);
/// Advances the generator's step. Needed only for ops outside compiled functions, which do not advance it; each
/// compiled call has its own step.
void advance_random_step();

/// A 0-d tensor with this number; a node under capture.
Tensor constant(double value, DType dtype, Device device = {}, SourceLine line = {});
Tensor constant(int64_t value, DType dtype, Device device = {}, SourceLine line = {});

namespace internal {
/// The tensor of an operand that must not be a number; throws, naming `op`.
const Tensor& tensor_of(const Arg& x, const char* op);
/// The first operand of a public function, which gives its line to the function's nodes and errors: LineScope and
/// tensor_of in one.
class FirstOperand : LineScope, public Tensor {
 public:
  FirstOperand(const Arg& x, const char* op) : LineScope(x.line()), Tensor(tensor_of(x, op)) {}
};
}  // namespace internal

/// The constant whose number all elements of a value are, through reshapes, broadcasts and, if `cast`, casts; null if
/// there is none.
const Node* constant_behind(const Graph& g, Value v, bool cast = false);

extern const OpDef constant_op;        // () -> 0-d {value: f64 or i64, dtype, device?}
extern const OpDef iota_op;            // () -> [size] {size, dtype, start, step: f64 or i64, device?}
extern const OpDef random_bits_op;     // (seed, step) -> i32 {shape, op_id, device?}
extern const OpDef random_bits_at_op;  // (seed, step, base) -> i32 {shape, strides, op_id, device?}
std::span<const OpDef* const> creation_ops();

}  // namespace weft
