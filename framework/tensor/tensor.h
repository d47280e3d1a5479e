// Tensor: an immutable value; copies are aliases. A tensor is concrete (memory and strides), traced (a Value of a graph
// under capture), or meta (type only). Ops as methods: methods.h.
#pragma once
#include <iosfwd>
#include <source_location>
#include <string>
#include <vector>

#include "framework/base/origin.h"
#include "framework/base/ref.h"
#include "framework/tensor/dtype.h"
#include "framework/tensor/methods.h"
#include "framework/tensor/shape.h"
#include "framework/tensor/storage.h"
#include "framework/tensor/view.h"

// In C++20 x[0, 1] is x[1], by the comma operator, which the compiler only warns about. Write x(0, 1) or x[0][1].
#if __cplusplus < 202100L
#ifdef __clang__
#pragma clang diagnostic error "-Wdeprecated-comma-subscript"
#else
#pragma GCC diagnostic error "-Wcomma-subscript"
#endif
#endif

namespace weft {

class Arg;

/// The type of a value, known before the value is computed.
struct TensorType {
  DType dtype = kFloat32;
  Device device;
  Shape shape;
  int64_t nbytes() const { return saturating_mul(shape.numel(), itemsize(dtype)); }
  friend bool operator==(const TensorType&, const TensorType&) = default;
  /// "f32[2, 3]", with the device unless it is cpu.
  std::string to_string() const;
};
std::ostream& operator<<(std::ostream& out, const TensorType& type);

struct TensorImpl final {
  TensorType type;
  Shape strides;
  Ref<Storage> storage;   // null for traced and meta tensors
  int64_t offset = 0;     // bytes into storage
  Ref<RefCounted> trace;  // dispatch/capture.h: the open capture that this tensor is a Value of
  Ref<RefCounted> grad;   // dispatch/tape.h: the tape node that computed this tensor
  int32_t node = -1;      // traced: the node of the Value
  int32_t index = 0;      // which result of the node

  static void* operator new(size_t);
  static void operator delete(void*);
  void retain() const { refs.fetch_add(1, std::memory_order_relaxed); }
  void release() const {
    if (refs.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
  mutable std::atomic<int64_t> refs{0};
  TensorImpl() = default;
  TensorImpl(const TensorImpl& o)
      : type(o.type),
        strides(o.strides),
        storage(o.storage),
        offset(o.offset),
        trace(o.trace),
        grad(o.grad),
        node(o.node),
        index(o.index) {}
};

struct TensorOptions {
  DType dtype = kFloat32;
  Device device = Device::cpu();
  bool requires_grad = false;
};

namespace internal {
/// A number of a list of numbers of several types.
struct AnyNumber {
  template <class T>
  requires std::is_arithmetic_v<T> AnyNumber(T) {}
};
/// The list of x[{0, 1}]: an error.
struct IndexList {
  template <class A, class B, class... C>
  IndexList(const A&, const B&, const C&...) {
    static_assert(sizeof(A) == 0,
                  "Tensor: [] accepts one index: write x(0, 1) or x[0][1] for x[0, 1], index(x, {Slice(0, 2), 1}) for "
                  "x[0:2, 1], and x[tensor({0, 1})] for the rows of a list");
  }
};
}  // namespace internal

class Tensor : public TensorMethods<Tensor> {
 public:
  using Loc = std::source_location;
  /// An undefined tensor: no type, no value.
  Tensor() = default;
  explicit Tensor(TensorImpl* impl) : impl_(impl) {}
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) noexcept = default;
  Tensor& operator=(const Tensor&) & = default;
  Tensor& operator=(Tensor&&) & noexcept = default;
  /// An error: PyTorch reads a list of numbers as i64 (torch.tensor) or as f32 (torch.Tensor).
  template <class T>
  requires std::is_arithmetic_v<T> Tensor(std::initializer_list<T>) { no_list<T>(); }
  template <class T>
  Tensor(std::initializer_list<std::initializer_list<T>>) {
    no_list<T>();
  }
  template <class T = internal::AnyNumber>
  Tensor(std::initializer_list<internal::AnyNumber>) {
    no_list<T>();
  }
  /// An error: x[0] and p.value() are new tensors, which an assignment would change in vain.
  template <class T>
  void operator=(T&&) && {
    static_assert(sizeof(T) == 0,
                  "Tensor: an assignment to a part or a result of a call changes nothing: write x = index_put(x, {0}, "
                  "y) for x[0] = y, and p.set(y) for a Parameter or Buffer");
  }

  /// x += y gives x a new value, x + y, as x = x + y does; other handles to the old value keep it. Defined for callers
  /// that include framework/dispatch/arg.h.
  Tensor& operator+=(const Arg& y) &;
  Tensor& operator-=(const Arg& y) &;
  Tensor& operator*=(const Arg& y) &;
  Tensor& operator/=(const Arg& y) &;
  /// Errors, as assignments to parts are.
#define WEFT_NO_PART(op)                                                                                           \
  template <class T>                                                                                               \
  void operator op(T&&)&& {                                                                                        \
    static_assert(sizeof(T) == 0,                                                                                  \
                  "Tensor: an assignment to a part or a result of a call changes nothing: write x = index_put(x, " \
                  "{0}, x[0] + y) for x[0] += y");                                                                 \
  }
  WEFT_NO_PART(+=)
  WEFT_NO_PART(-=)
  WEFT_NO_PART(*=)
  WEFT_NO_PART(/=)
#undef WEFT_NO_PART

  /// Uninitialised memory of this type on its device.
  static Tensor empty(const TensorType& type);
  /// A contiguous copy of `values`, whose count must equal the product of `shape`. Integers without a dtype become i64,
  /// and char i8, as PyTorch's dtype of that name.
  template <class T>
  static Tensor from_vector(const std::vector<T>& values, const Shape& shape, Loc loc = Loc::current()) {
    if constexpr (std::is_same_v<T, char>) {
      return copy_of(std::vector<int8_t>(values.begin(), values.end()), shape, loc);
    } else if constexpr (std::is_integral_v<T> && !HasDType<T>) {
      for (T v : values)
        WEFT_CHECK(std::is_signed_v<T> || static_cast<uint64_t>(v) <= static_cast<uint64_t>(INT64_MAX),
                   "from_vector: a value is ", static_cast<uint64_t>(v), "; need one below 2^63");
      return copy_of(std::vector<int64_t>(values.begin(), values.end()), shape, loc);
    } else {
      static_assert(HasDType<T>,
                    "from_vector: no dtype stores this type; need float, double, bfloat16, float16, int64_t, int32_t, "
                    "int16_t, int8_t, uint8_t or bool: convert the values first");
      if constexpr (HasDType<T>) return copy_of(values, shape, loc);
    }
  }
  static Tensor from_vector(const std::vector<float>& values, const Shape& shape, Loc loc = Loc::current()) {
    return from_vector<float>(values, shape, loc);
  }
  /// Memory owned by the caller: `deleter(data)` runs when the last alias is gone.
  static Tensor from_blob(void* data, const Shape& shape, DType dtype, std::function<void(void*)> deleter = {},
                          Loc loc = Loc::current());

  bool defined() const { return static_cast<bool>(impl_); }
  /// An error: a tensor is no condition, because inside a compiled function it has no value.
  template <class B>
  requires std::is_same_v<B, bool>
  explicit operator B() const {
    static_assert(
        !std::is_same_v<B, bool>,
        "Tensor: a condition (if, while, ?:, &&, ||) cannot read a tensor: use where(condition, a, b) to choose "
        "by value, t.item<bool>() outside compiled functions, or t.defined()");
    return false;
  }
  const TensorType& type() const { return get().type; }
  const Shape& shape() const { return get().type.shape; }
  const Shape& size() const { return shape(); }
  const Shape& sizes() const { return shape(); }
  int64_t size(int64_t dim, Loc loc = Loc::current()) const {
    const int64_t i = dim < 0 ? dim + this->dim() : dim;
    if (i < 0 || i >= this->dim()) [[unlikely]]
      bad_dim(dim, loc);
    return shape()[static_cast<int>(i)];
  }
  DType dtype() const { return get().type.dtype; }
  DType scalar_type() const { return dtype(); }
  Device device() const { return get().type.device; }
  int dim() const { return shape().size(); }
  int64_t numel() const { return shape().numel(); }
  /// Strides in elements; throws for traced tensors, which have none.
  const Shape& strides() const;
  bool is_contiguous() const;
  bool is_traced() const { return static_cast<bool>(get().trace); }

  // Reading a value waits until it is computed. Inside capture it throws and names the caller's line.
  /// The value of a one-element tensor, converted to T.
  template <class T>
  T item(Loc loc = Loc::current()) const;
  double item(Loc loc = Loc::current()) const { return item<double>(loc); }
  /// All values in row-major order, converted to T.
  template <class T>
  std::vector<T> to_vector(Loc loc = Loc::current()) const;
  /// The address of the first element; needs a contiguous tensor of dtype T. Valid as long as this Tensor lives.
  template <class T>
  const T* data(Loc loc = Loc::current()) const {
    static_assert(HasDType<T>, "data: no dtype stores this type");
    return static_cast<const T*>(data_checked(DTypeOf<T>::value, loc));
  }
  /// data(); also for reading only, because tensors are values.
  template <class T>
  const T* data_ptr(Loc loc = Loc::current()) const {
    return data<T>(loc);
  }
  /// Does not exist.
  template <class T, size_t N>
  void accessor() const {
    static_assert(N > 99, "accessor: write x.data<float>()[i * x.size(1) + j], or x.to_vector<float>()");
  }
  /// The view that a kernel gets: address, strides, dtype.
  StridedView view_for_kernel(Loc loc = Loc::current()) const;

  // Gradients (framework/autodiff).
  /// The same value as a tensor whose uses are recorded, so that grad() can compute its gradient.
  Tensor requires_grad(bool on = true, Loc loc = Loc::current()) const;
  bool requires_grad_enabled() const { return static_cast<bool>(get().grad); }
  /// The same value, detached from the tape.
  Tensor detach() const;
  Tensor data() const { return detach(); }

  // Ops that are no methods of TensorMethods: framework code calls them (defined in ops/core).
  Tensor to(DType dtype, Loc loc = Loc::current()) const;
  Tensor to(Device device, Loc loc = Loc::current()) const;
  Tensor contiguous(Loc loc = Loc::current()) const;
  /// A number selects the slice at this position of dim 0, counted from the end if negative. An integer tensor selects
  /// slices: [index's shape..., rest]. A bool tensor, with the extents of the first dims, selects the elements where it
  /// is true: [count, rest]; see nonzero. index(x, {Slice(1, 3), 0}) takes several indices. Defined for callers that
  /// include framework/dispatch/arg.h.
  Tensor operator[](const Arg& index) const;
  Tensor operator[](const internal::IndexList&) const;
#ifdef __cpp_multidimensional_subscript
  /// Since C++23: x[0, Slice(1, 3)] is index(x, {0, Slice(1, 3)}).
  template <class... I>
  requires(sizeof...(I) > 1) Tensor operator[](const I&... indices) const { return index({indices...}); }
#endif

  // For users of PyTorch.
  Tensor cpu(Loc loc = Loc::current()) const { return to(Device::cpu(), loc); }
  Tensor cuda(int index = 0, Loc loc = Loc::current()) const { return to(Device::cuda(index), loc); }
  Tensor half(Loc loc = Loc::current()) const { return to(kFloat16, loc); }
  bool is_cuda() const { return device().type == DeviceType::kCuda; }
  /// For a tensor of this dtype on this device: zeros({2}, x.options()).
  TensorOptions options() const { return {.dtype = dtype(), .device = device()}; }
  /// The same tensor: values never change, so none needs a copy.
  Tensor clone() const { return *this; }
  /// An error with the expression to write.
  template <class T = Tensor>
  void backward() const {
    static_assert(
        !std::is_same_v<T, Tensor>,
        "Tensor: gradients are values, not state: write g = grad(loss, model.parameters()) and opt.step(g), or "
        "opt.minimize(loss)");
  }
  template <class T = Tensor>
  Tensor grad() const {
    static_assert(!std::is_same_v<T, Tensor>,
                  "Tensor: gradients are values, not state: write g = grad(loss, {x})[0], with x recorded: x = "
                  "x.requires_grad()");
    return {};
  }

  /// PyTorch-like text, summarised when large.
  std::string to_string() const;

  TensorImpl* impl() const { return impl_.get(); }
  const TensorImpl& get() const {
    WEFT_CHECK_AS(kFailedPrecondition, impl_, "tensor: used before it was given a value; need a defined tensor");
    return *impl_;
  }

 private:
  template <class T>
  static void no_list() {
    static_assert(sizeof(T) == 0, "Tensor: numbers in braces are no tensor: write Tensor t = tensor({1, 2, 3})");
  }
  template <class T>
  static Tensor copy_of(const std::vector<T>& values, const Shape& shape, Loc loc);
  [[noreturn]] void bad_dim(int64_t dim, Loc loc) const;
  const void* data_checked(DType dtype, Loc loc) const;
  Ref<TensorImpl> impl_;
};

std::ostream& operator<<(std::ostream& out, const Tensor& t);

namespace internal {
/// The same values in host memory; `t` itself if it is already there.
Tensor on_host(const Tensor& t);
}  // namespace internal

/// Throws, naming `what` and the line, if `t` is traced or meta: such a tensor has no value to read.
void require_concrete(const Tensor& t, const char* what, std::source_location loc);

}  // namespace weft
