#include "framework/tensor/tensor.h"

#include <cstring>
#include <ostream>

#include "framework/tensor/bools.h"

namespace weft {

std::string TensorType::to_string() const {
  return device == Device::cpu() ? str_cat(dtype, shape) : str_cat(dtype, shape, "@", device);
}

std::ostream& operator<<(std::ostream& out, const TensorType& type) { return out << type.to_string(); }

namespace {
// One free list of TensorImpl-sized blocks per thread: a handle usually needs no heap allocation.
struct ImplPool {
  std::vector<void*> free;
  ~ImplPool() {
    for (void* p : free) ::operator delete(p);
  }
};
thread_local ImplPool* impl_pool = nullptr;
thread_local bool impl_pool_gone = false;
struct ImplPoolOwner {
  ImplPool pool;
  ImplPoolOwner() { impl_pool = &pool; }
  ~ImplPoolOwner() {
    impl_pool = nullptr;
    impl_pool_gone = true;
  }
};
ImplPool* the_pool() {
  if (!impl_pool && !impl_pool_gone) {
    thread_local ImplPoolOwner owner;
    impl_pool = &owner.pool;
  }
  return impl_pool;
}
}  // namespace

void* TensorImpl::operator new(size_t n) {
  ImplPool* p = the_pool();
  if (!p || p->free.empty()) return ::operator new(n);
  void* block = p->free.back();
  p->free.pop_back();
  return block;
}

void TensorImpl::operator delete(void* block) {
  ImplPool* p = the_pool();
  if (p && p->free.size() < 4096) {
    p->free.push_back(block);
  } else {
    ::operator delete(block);
  }
}

Tensor Tensor::empty(const TensorType& type) {
  const int64_t n = checked_numel(type.shape, "empty");
  Tensor t(new TensorImpl);
  TensorImpl& i = *t.impl_;
  i.type = type;
  i.strides = contiguous_strides(type.shape);
  if (type.device.type != DeviceType::kMeta) i.storage = Storage::allocate(n * itemsize(type.dtype), type.device);
  return t;
}

Tensor Tensor::from_blob(void* data, const Shape& shape, DType dtype, std::function<void(void*)> deleter, Loc loc) {
  internal::LineScope here(loc);
  int64_t n = checked_numel(shape, "from_blob");
  WEFT_CHECK(data || n == 0, "from_blob: got null data for shape ", shape, "; need memory");
  internal::check_bools("from_blob", {data, dtype, shape, contiguous_strides(shape)});
  Tensor t(new TensorImpl);
  t.impl_->type = {dtype, Device::cpu(), shape};
  t.impl_->strides = contiguous_strides(shape);
  t.impl_->storage = Storage::wrap(data, n * itemsize(dtype), Device::cpu(), std::move(deleter));
  return t;
}

template <class V>
Tensor Tensor::copy_of(const std::vector<V>& values, const Shape& shape, Loc loc) {
  internal::LineScope here(loc);
  int64_t n = checked_numel(shape, "from_vector");
  WEFT_CHECK(static_cast<int64_t>(values.size()) == n, "from_vector: got ", values.size(), " values; shape ", shape,
             " needs ", n);
  Tensor t = empty({DTypeOf<V>::value, Device::cpu(), shape});
  V* out = static_cast<V*>(t.impl_->storage->data());
  for (int64_t i = 0; i < n; ++i) out[i] = values[i];
  return t;
}

void Tensor::bad_dim(int64_t dim, Loc loc) const {
  internal::LineScope here(loc);
  WEFT_CHECK_AS(kOutOfRange, this->dim() > 0, "size: dim ", dim, " of ", type(),
                ", which has no dims; need a tensor with dims");
  normalize_dim(dim, this->dim(), "size");
  __builtin_unreachable();
}

const Shape& Tensor::strides() const {
  WEFT_CHECK_AS(kFailedPrecondition, !get().trace,
                "strides: a traced tensor has no memory layout; need a concrete tensor");
  return get().strides;
}

bool Tensor::is_contiguous() const { return get().trace || weft::is_contiguous(get().type.shape, get().strides); }

void require_concrete(const Tensor& t, const char* what, std::source_location loc) {
  const TensorImpl& i = t.get();
  WEFT_CHECK_AS(kFailedPrecondition, !i.trace, what, ": the value of this ", i.type,
                " does not exist yet: it is read inside capture at ", loc.file_name(), ":", loc.line(),
                "; need to return it from the captured function, or keep the decision in the graph with where()");
  internal::LineScope here(loc);
  WEFT_CHECK_AS(kFailedPrecondition, i.type.device.type != DeviceType::kMeta, what, ": a tensor on meta has no value (",
                i.type, "); need one on cpu or cuda");
}

StridedView Tensor::view_for_kernel(Loc loc) const {
  require_concrete(*this, "read", loc);
  const TensorImpl& i = get();
  return {static_cast<char*>(i.storage->data()) + i.offset, i.type.dtype, i.type.shape, i.strides};
}

namespace internal {

std::pair<int64_t, int> first_bad_bool(const StridedView& v) {
  const int64_t n = v.numel();
  const auto* const data = v.as<const uint8_t>();
  const bool dense = v.contiguous();
  uint8_t bits = 0;  // bits of all bytes; a loop without a branch is fast
  for (int64_t i = 0; dense && i < n; ++i) bits |= data[i];
  if (dense && bits <= 1) return {-1, 0};
  for (int64_t i = 0; i < n; ++i) {
    int64_t at = dense ? i : 0;
    for (int64_t d = v.shape.size() - 1, rest = i; !dense && d >= 0; rest /= v.shape[static_cast<int>(d--)])
      at += rest % v.shape[static_cast<int>(d)] * v.strides[static_cast<int>(d)];
    if (data[at] > 1) return {i, data[at]};
  }
  return {-1, 0};
}

void check_bools(const char* op, const StridedView& v) {
  if (v.dtype != kBool) return;
  const auto [at, byte] = first_bad_bool(v);
  WEFT_CHECK(at < 0, op, ": the bool at position ", at, " is the byte ", byte,
             "; need 0 or 1: take the bytes as u8 and compare them with 0");
}

Tensor on_host(const Tensor& t) {
  const Device device = t.device();
  if (device.type == DeviceType::kCpu) return t;
  DeviceMemory* memory = device_memory(device.type);
  WEFT_CHECK_AS(kUnavailable, memory, "read: no backend for device ", device);
  Tensor host = Tensor::empty({t.dtype(), Device::cpu(), t.shape()});
  memory->copy(t.view_for_kernel(), device, host.view_for_kernel(), Device::cpu());
  return host;
}

}  // namespace internal

const void* Tensor::data_checked(DType dtype, Loc loc) const {
  require_concrete(*this, "data", loc);
  internal::LineScope here(loc);
  const TensorImpl& i = get();
  WEFT_CHECK(i.type.device.type == DeviceType::kCpu, "data: tensor ", i.type,
             " is not in host memory; need one on the CPU: move with to(Device::cpu())");
  WEFT_CHECK(dtype == i.type.dtype, "data: asked for ", dtype, " of a tensor of ", i.type.dtype, "; convert with to(",
             dtype, ")");
  WEFT_CHECK(weft::is_contiguous(i.type.shape, i.strides), "data: tensor ", i.type, " has strides ", i.strides,
             "; need a contiguous one: call contiguous() first");
  return static_cast<char*>(i.storage->data()) + i.offset;
}

template <class T>
static T load(const void* p, DType t) {
  auto cast = [](auto v) {
    if constexpr (std::is_same_v<T, bool>) {
      return v != decltype(v){};
    } else {
      return static_cast<T>(v);
    }
  };
  auto as = [&]<class S>(S) {
    S v;
    std::memcpy(&v, p, sizeof v);
    return v;
  };
  if (t == kBool) return cast(static_cast<int>(as(uint8_t{}) != 0));
  if (!is_floating(t)) return with_integer(t, [&](auto s) { return cast(as(s)); });
  if (itemsize(t) == 1) return cast(float8_to_float(as(uint8_t{}), t));
  return with_float(t, [&]<class S>(S s) {
    if constexpr (sizeof(S) == 2) {
      return cast(static_cast<float>(as(s)));
    } else {
      return cast(as(s));
    }
  });
}

// The element as V; throws if a narrower integer type cannot hold it.
template <class V>
static V load_whole(const void* p, DType t, const char* name) {
  if constexpr (std::is_integral_v<V> && !std::is_same_v<V, bool> && sizeof(V) < 8) {
    // Whether V can hold all numbers of t.
    const auto size = static_cast<int64_t>(sizeof(V));
    const bool fits = t == kUInt8 ? size > 1 || !std::is_signed_v<V> : size >= itemsize(t) && std::is_signed_v<V>;
    if (is_integral(t) && !fits) {
      const auto value = load<int64_t>(p, t);
      WEFT_CHECK(static_cast<int64_t>(static_cast<V>(value)) == value, name, ": ", value,
                 " does not fit an integer of ", 8 * sizeof(V), " bits; need ", name, "<int64_t>()");
    }
  }
  return load<V>(p, t);
}

template <class V>
V Tensor::item(Loc loc) const {
  require_concrete(*this, "item", loc);
  internal::LineScope here(loc);
  WEFT_CHECK(numel() == 1, "item: tensor ", type(), " has ", numel(), " elements; need exactly one");
  Tensor host = internal::on_host(*this);
  StridedView v = host.view_for_kernel(loc);
  return load_whole<V>(v.data, v.dtype, "item");
}

template <class V>
std::vector<V> Tensor::to_vector(Loc loc) const {
  require_concrete(*this, "to_vector", loc);
  Tensor host = internal::on_host(*this);
  StridedView v = host.view_for_kernel(loc);
  int64_t n = v.numel(), size = itemsize(v.dtype);
  std::vector<V> out(n);
  Shape index = Shape::filled(v.shape.size(), 0);
  const char* p = static_cast<const char*>(v.data);
  for (int64_t i = 0; i < n; ++i) {
    out[i] = load_whole<V>(p, v.dtype, "to_vector");
    for (int d = v.shape.size() - 1; d >= 0; --d) {
      p += v.strides[d] * size;
      if (++index[d] < v.shape[d]) break;
      p -= v.strides[d] * size * v.shape[d];
      index[d] = 0;
    }
  }
  return out;
}

#define WEFT_INSTANTIATE(T)              \
  template T Tensor::item<T>(Loc) const; \
  template std::vector<T> Tensor::to_vector<T>(Loc) const;
WEFT_INSTANTIATE(float)
WEFT_INSTANTIATE(double)
WEFT_INSTANTIATE(int64_t)
WEFT_INSTANTIATE(int32_t)
WEFT_INSTANTIATE(uint8_t)
WEFT_INSTANTIATE(bool)
WEFT_INSTANTIATE(bfloat16)
WEFT_INSTANTIATE(float16)
WEFT_INSTANTIATE(char)
WEFT_INSTANTIATE(signed char)
WEFT_INSTANTIATE(short)
WEFT_INSTANTIATE(unsigned short)
WEFT_INSTANTIATE(unsigned)
WEFT_INSTANTIATE(unsigned long)
WEFT_INSTANTIATE(long long)
WEFT_INSTANTIATE(unsigned long long)
#undef WEFT_INSTANTIATE
template Tensor Tensor::copy_of(const std::vector<float>&, const Shape&, Loc);
template Tensor Tensor::copy_of(const std::vector<double>&, const Shape&, Loc);
template Tensor Tensor::copy_of(const std::vector<bfloat16>&, const Shape&, Loc);
template Tensor Tensor::copy_of(const std::vector<float16>&, const Shape&, Loc);
template Tensor Tensor::copy_of(const std::vector<int64_t>&, const Shape&, Loc);
template Tensor Tensor::copy_of(const std::vector<long long>&, const Shape&, Loc);
template Tensor Tensor::copy_of(const std::vector<int32_t>&, const Shape&, Loc);
template Tensor Tensor::copy_of(const std::vector<int16_t>&, const Shape&, Loc);
template Tensor Tensor::copy_of(const std::vector<int8_t>&, const Shape&, Loc);
template Tensor Tensor::copy_of(const std::vector<uint8_t>&, const Shape&, Loc);
template Tensor Tensor::copy_of(const std::vector<bool>&, const Shape&, Loc);

}  // namespace weft
