// Ops as methods of Tensor, Parameter and Buffer: x.f(...) is f(x, ...), the function of that name, with PyTorch's
// arguments. A method needs the header of its function where it is called; weft.h has all.
#pragma once
#include <initializer_list>
#include <source_location>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "framework/base/called.h"
#include "framework/tensor/shape.h"

namespace weft {

class Tensor;
class Arg;

namespace indexing {
class TensorIndex;
}  // namespace indexing

namespace internal {

/// An argument of a function that does not exist.
struct Anything {
  template <class T>
  Anything(const T&) {}
};

// Arg is complete where a method is called, not here.
template <class Self>
struct ArgOf {
  using type = Arg;
};

// The function of each name, found where a method is called.
namespace methods {
#define WEFT_CALL(name)                   \
  struct call_##name {                    \
    template <class... A>                 \
    static auto with(A&&... a) {          \
      return name(std::forward<A>(a)...); \
    }                                     \
  };
// clang-format off
#define WEFT_PLAIN_METHODS(M) M(abs) M(neg) M(sign) M(exp) M(exp2) M(expm1) M(log) M(log1p) M(log2) M(log10) M(sqrt) \
  M(rsqrt) M(sin) M(cos) M(tan) M(asin) M(acos) M(atan) M(sinh) M(cosh) M(tanh) M(asinh) M(acosh) M(atanh) M(sigmoid) \
  M(erf) M(erfc) M(erfinv) M(lgamma) M(digamma) M(floor) M(ceil) M(round) M(trunc) M(frac) M(relu) M(reciprocal) \
  M(square) M(isfinite) M(isnan) M(isinf) M(logical_not) M(t) M(squeeze) M(ravel) M(nonzero) M(argmax) M(argmin) \
  M(max) M(min) M(median) M(trace) M(signbit)
#define WEFT_BINARY_METHODS(M) M(add) M(sub) M(mul) M(div) M(pow) M(maximum) M(minimum) M(remainder) M(fmod) \
  M(floor_divide) M(atan2) M(eq) M(ne) M(lt) M(le) M(gt) M(ge) M(logical_and) M(logical_or) M(logical_xor) M(matmul) \
  M(mm) M(bmm) M(mv) M(dot) M(outer) M(masked_select) M(take) M(clamp_min) M(clamp_max) \
  M(equal) M(fmax) M(fmin) M(gcd) M(lcm) M(nextafter)
#define WEFT_REDUCING_METHODS(M) M(sum) M(mean) M(amax) M(amin) M(prod) M(any) M(all) M(logsumexp)
#define WEFT_OTHER_METHODS(M) M(reshape) M(transpose) M(permute) M(expand) M(unsqueeze) M(flatten) M(slice) M(var) \
  M(softmax) M(log_softmax) M(cumsum) M(cumprod) M(cummax) M(cummin) M(logcumsumexp) M(sort) M(argsort) M(topk) \
  M(kthvalue) M(norm) M(clamp) M(clip) M(lerp) M(masked_fill) M(gather) M(scatter) M(scatter_add) M(index_select) \
  M(index_add) M(index_copy) M(index_fill) M(take_along_dim) M(chunk) M(split) M(unbind) M(narrow) M(select) \
  M(movedim) M(swapaxes) M(std_of) M(unflatten) M(roll) M(flip) M(tile) M(repeat) M(repeat_interleave) \
  M(tril) M(triu) M(diagonal) M(diag) M(masked_scatter) M(fill_diagonal) M(view) M(index) \
  M(zeros) M(ones) M(empty) M(full)
// clang-format on
WEFT_PLAIN_METHODS(WEFT_CALL)
WEFT_BINARY_METHODS(WEFT_CALL)
WEFT_REDUCING_METHODS(WEFT_CALL)
WEFT_OTHER_METHODS(WEFT_CALL)
#undef WEFT_CALL
struct call_part_at {
  template <class X>
  static auto with(X&& x, std::initializer_list<const X*> indices) {
    return part_at(x, indices);
  }
};
}  // namespace methods

// Calls with a tensor, a Parameter or a Buffer find the functions of this namespace: framework/dispatch/absent.h.
namespace absent {
struct Operand {};
}  // namespace absent

}  // namespace internal

template <class Self>
class TensorMethods : public internal::absent::Operand {
 public:
  using Loc = std::source_location;

#define WEFT_METHOD(name) \
  auto name(Loc loc = Loc::current()) const { return internal::methods::call_##name::with(here(loc)); }
  WEFT_PLAIN_METHODS(WEFT_METHOD)
#undef WEFT_METHOD

#define WEFT_METHOD(name)                                          \
  auto name(const Arg& other, Loc loc = Loc::current()) const {    \
    return internal::methods::call_##name::with(here(loc), other); \
  }
  WEFT_BINARY_METHODS(WEFT_METHOD)
#undef WEFT_METHOD

#define WEFT_METHOD(name)                                                                  \
  auto name(const Dims& dims = {}, bool keepdim = false, Loc loc = Loc::current()) const { \
    return internal::methods::call_##name::with(here(loc), dims, keepdim);                 \
  }
  WEFT_REDUCING_METHODS(WEFT_METHOD)
#undef WEFT_METHOD

#define WEFT_METHOD(name, parameters, ...) \
  auto name parameters const { return internal::methods::call_##name::with(here(loc), __VA_ARGS__); }
#define P(...) (__VA_ARGS__, Loc loc = Loc::current())
  WEFT_METHOD(var, P(const Dims& dims = {}, double correction = 1, bool keepdim = false), dims, correction, keepdim)
  /// Works where std(x) is ambiguous with namespace std: after `using namespace weft`.
  auto std(const Dims& dims = {}, double correction = 1, bool keepdim = false, Loc loc = Loc::current()) const {
    return internal::methods::call_std_of::with(here(loc), dims, correction, keepdim);
  }
  WEFT_METHOD(argmax, P(int64_t dim, bool keepdim = false), dim, keepdim)
  WEFT_METHOD(argmin, P(int64_t dim, bool keepdim = false), dim, keepdim)
  WEFT_METHOD(max, P(int64_t dim, bool keepdim = false), dim, keepdim)
  WEFT_METHOD(min, P(int64_t dim, bool keepdim = false), dim, keepdim)
  WEFT_METHOD(max, P(const Arg& other), other)
  WEFT_METHOD(min, P(const Arg& other), other)
  WEFT_METHOD(median, P(int64_t dim, bool keepdim = false), dim, keepdim)
  WEFT_METHOD(kthvalue, P(int64_t k, int64_t dim = -1, bool keepdim = false), k, dim, keepdim)
  WEFT_METHOD(norm, P(double p = 2, const Dims& dims = {}, bool keepdim = false), p, dims, keepdim)
  WEFT_METHOD(softmax, P(int64_t dim), dim)
  WEFT_METHOD(log_softmax, P(int64_t dim), dim)
  WEFT_METHOD(softmax, P(int64_t dim, DType dtype), dim, dtype)
  WEFT_METHOD(log_softmax, P(int64_t dim, DType dtype), dim, dtype)
  WEFT_METHOD(cumsum, P(int64_t dim), dim)
  WEFT_METHOD(cumprod, P(int64_t dim), dim)
  WEFT_METHOD(cummax, P(int64_t dim), dim)
  WEFT_METHOD(cummin, P(int64_t dim), dim)
  WEFT_METHOD(logcumsumexp, P(int64_t dim), dim)
  WEFT_METHOD(sort, P(int64_t dim = -1, bool descending = false), dim, descending)
  WEFT_METHOD(argsort, P(int64_t dim = -1, bool descending = false), dim, descending)
  WEFT_METHOD(topk, P(int64_t k, int64_t dim = -1, bool largest = true), k, dim, largest)
  WEFT_METHOD(clamp, P(const Arg& min), min)
  WEFT_METHOD(clip, P(const Arg& min), min)
  WEFT_METHOD(clamp, P(const Arg& min, const Arg& max), min, max)
  WEFT_METHOD(clip, P(const Arg& min, const Arg& max), min, max)
  WEFT_METHOD(lerp, P(const Arg& end, const Arg& weight), end, weight)
  WEFT_METHOD(masked_fill, P(const Arg& mask, const Arg& value), mask, value)
  WEFT_METHOD(gather, P(int64_t dim, const Arg& index), dim, index)
  WEFT_METHOD(scatter, P(int64_t dim, const Arg& index, const Arg& src), dim, index, src)
  WEFT_METHOD(scatter_add, P(int64_t dim, const Arg& index, const Arg& src), dim, index, src)
  WEFT_METHOD(index_select, P(int64_t dim, const Arg& index), dim, index)
  WEFT_METHOD(index_add, P(int64_t dim, const Arg& index, const Arg& src), dim, index, src)
  WEFT_METHOD(index_copy, P(int64_t dim, const Arg& index, const Arg& src), dim, index, src)
  WEFT_METHOD(index_fill, P(int64_t dim, const Arg& index, const Arg& value), dim, index, value)
  WEFT_METHOD(take_along_dim, P(const Arg& index, int64_t dim), index, dim)
  WEFT_METHOD(take_along_dim, P(const Arg& index), index)
  WEFT_METHOD(masked_scatter, P(const Arg& mask, const Arg& source), mask, source)
  WEFT_METHOD(fill_diagonal, P(const Arg& value, bool wrap = false), value, wrap)
  WEFT_METHOD(round, P(int64_t decimals), decimals)
  WEFT_METHOD(div, P(const Arg& other, std::string_view rounding_mode), other, rounding_mode)
  WEFT_METHOD(chunk, P(int64_t n, int64_t dim = 0), n, dim)
  WEFT_METHOD(split, P(int64_t size, int64_t dim = 0), size, dim)
  WEFT_METHOD(split, P(const std::vector<int64_t>& sizes, int64_t dim = 0), sizes, dim)
  WEFT_METHOD(unbind, P(int64_t dim = 0), dim)
  WEFT_METHOD(narrow, P(int64_t dim, int64_t start, int64_t length), dim, start, length)
  WEFT_METHOD(select, P(int64_t dim, int64_t index), dim, index)
  WEFT_METHOD(slice, P(int64_t dim, int64_t begin, int64_t end, int64_t step = 1), dim, begin, end, step)
  WEFT_METHOD(transpose, P(int64_t a, int64_t b), a, b)
  WEFT_METHOD(swapaxes, P(int64_t a, int64_t b), a, b)
  WEFT_METHOD(movedim, P(int64_t from, int64_t to), from, to)
  WEFT_METHOD(squeeze, P(int64_t dim), dim)
  WEFT_METHOD(unsqueeze, P(int64_t dim), dim)
  WEFT_METHOD(flatten, P(int64_t begin = 0, int64_t end = -1), begin, end)
  WEFT_METHOD(unflatten, P(int64_t dim, const Shape& sizes), dim, sizes)
  WEFT_METHOD(roll, P(const Shape& shifts, const Shape& dims = {}), shifts, dims)
  WEFT_METHOD(flip, P(const Shape& dims), dims)
  WEFT_METHOD(repeat_interleave, P(int64_t n, int64_t dim), n, dim)
  WEFT_METHOD(tril, P(int64_t diagonal = 0), diagonal)
  WEFT_METHOD(triu, P(int64_t diagonal = 0), diagonal)
  WEFT_METHOD(diagonal, P(int64_t offset = 0, int64_t dim1 = 0, int64_t dim2 = 1), offset, dim1, dim2)
  WEFT_METHOD(diag, P(int64_t diagonal = 0), diagonal)
  WEFT_METHOD(index, P(const std::vector<indexing::TensorIndex>& at), at)
#undef P
#undef WEFT_METHOD
  /// The result has x's dtype and device.
#define WEFT_NEW(name)                                                                     \
  auto new_##name(const Shape& shape, Loc loc = Loc::current()) const {                    \
    return internal::methods::call_##name::with(shape, here(loc).tensor().options(), loc); \
  }
  WEFT_NEW(zeros)
  WEFT_NEW(ones)
  WEFT_NEW(empty)
#undef WEFT_NEW
  auto new_full(const Shape& shape, const Arg& value, Loc loc = Loc::current()) const {
    return internal::methods::call_full::with(shape, value, here(loc).tensor().options());
  }

  // A shape as a list, or as two to five numbers: x.reshape({2, -1}), x.reshape(2, -1).
#define WEFT_METHOD(name, function)                                                                                \
  auto name(const Shape& s, Loc loc = Loc::current()) const {                                                      \
    return internal::methods::call_##function::with(here(loc), s);                                                 \
  }                                                                                                                \
  auto name(int64_t a, int64_t b, Loc loc = Loc::current()) const { return name(Shape{a, b}, loc); }               \
  auto name(int64_t a, int64_t b, int64_t c, Loc loc = Loc::current()) const { return name(Shape{a, b, c}, loc); } \
  auto name(int64_t a, int64_t b, int64_t c, int64_t d, Loc loc = Loc::current()) const {                          \
    return name(Shape{a, b, c, d}, loc);                                                                           \
  }                                                                                                                \
  auto name(int64_t a, int64_t b, int64_t c, int64_t d, int64_t e, Loc loc = Loc::current()) const {               \
    return name(Shape{a, b, c, d, e}, loc);                                                                        \
  }
  WEFT_METHOD(reshape, reshape)
  WEFT_METHOD(view, view)
  WEFT_METHOD(permute, permute)
  WEFT_METHOD(expand, expand)
  WEFT_METHOD(repeat, repeat)
  WEFT_METHOD(tile, tile)
#undef WEFT_METHOD

  /// The shape of the other tensor.
  auto view_as(const Self& other, Loc loc = Loc::current()) const {
    const internal::Called name("view_as");
    return view(other.shape(), loc);
  }
  auto expand_as(const Self& other, Loc loc = Loc::current()) const {
    const internal::Called name("expand_as");
    return expand(other.shape(), loc);
  }
  /// The dims in reverse order, and the last two dims exchanged.
  auto T(Loc loc = Loc::current()) const {
    Shape dims;
    for (int d = self().shape().size(); d-- > 0;) dims.push_back(d);
    return permute(dims, loc);
  }
  auto mT(Loc loc = Loc::current()) const { return transpose(-2, -1, loc); }

  // Errors: no function changes a tensor, so that none ends with an underscore.
#define WEFT_NO_IN_PLACE(name, text)                                                                 \
  template <class... A>                                                                              \
  Self name(const A&...) const {                                                                     \
    static_assert(sizeof...(A) > 99, #name ": tensors are values, which never change: write " text); \
    return {};                                                                                       \
  }
#define WEFT_NO_IN_PLACE_OF(name) \
  WEFT_NO_IN_PLACE(name##_, "x = x." #name "(...), and p.set(y) for a Parameter or Buffer")
  WEFT_NO_IN_PLACE_OF(add)
  WEFT_NO_IN_PLACE_OF(sub)
  WEFT_NO_IN_PLACE_OF(mul)
  WEFT_NO_IN_PLACE_OF(div)
  WEFT_NO_IN_PLACE_OF(clamp)
  WEFT_NO_IN_PLACE_OF(exp)
  WEFT_NO_IN_PLACE_OF(sqrt)
  WEFT_NO_IN_PLACE_OF(relu)
  WEFT_NO_IN_PLACE_OF(masked_fill)
  WEFT_NO_IN_PLACE_OF(detach)
  WEFT_NO_IN_PLACE(zero_, "x = zeros_like(x), and nn::init::zeros(p) for a Parameter")
  WEFT_NO_IN_PLACE(fill_, "x = full_like(x, value), and nn::init::constant(p, value) for a Parameter")
  WEFT_NO_IN_PLACE(copy_, "x = y, and p.set(y) for a Parameter or Buffer")
  WEFT_NO_IN_PLACE(normal_, "x = normal(x.shape(), mean, std), and nn::init::normal(p, mean, std) for a Parameter")
  WEFT_NO_IN_PLACE(uniform_, "x = uniform(x.shape(), low, high), and nn::init::uniform(p, low, high) for a Parameter")
  WEFT_NO_IN_PLACE(requires_grad_, "x = x.requires_grad(), and p.requires_grad(false) to freeze a Parameter")
#undef WEFT_NO_IN_PLACE_OF
#undef WEFT_NO_IN_PLACE
  template <class T = Self>
  Self index_put_(std::initializer_list<internal::Anything>, const internal::Anything&) const {
    static_assert(!std::is_same_v<T, Self>,
                  "index_put_: tensors are values, which never change: write x = index_put(x, {0, Slice(1, 3)}, y)");
    return {};
  }

  /// x(i, j) is x[i][j], the element, or the part, at these indices: numbers or 0-d tensors. index(x, {i, j}) takes
  /// more.
  auto operator()(const Arg& i) const { return part(i); }
  auto operator()(const Arg& i, const Arg& j) const { return part(i, j); }
  auto operator()(const Arg& i, const Arg& j, const Arg& k) const { return part(i, j, k); }
  auto operator()(const Arg& i, const Arg& j, const Arg& k, const Arg& l) const { return part(i, j, k, l); }

 private:
  const Self& self() const { return static_cast<const Self&>(*this); }
  typename internal::ArgOf<Self>::type here(Loc loc) const { return {self(), loc}; }
  template <class... I>
  auto part(const I&... indices) const {
    return internal::methods::call_part_at::with(here(Loc::current()), {&indices...});
  }
};

#undef WEFT_PLAIN_METHODS
#undef WEFT_BINARY_METHODS
#undef WEFT_REDUCING_METHODS
#undef WEFT_OTHER_METHODS

}  // namespace weft
