#include "framework/tensor/dlpack.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "framework/base/saturate.h"
#include "framework/tensor/bools.h"

namespace weft {
namespace {

DLDataType dl_dtype(DType t) {
  uint8_t bits = static_cast<uint8_t>(itemsize(t) * 8);
  switch (t) {
    case kFloat32:
    case kFloat64:
    case kFloat16:
      return {kDLFloat, bits, 1};
    case kBFloat16:
      return {kDLBfloat, bits, 1};
    case kInt64:
    case kInt32:
    case kInt16:
    case kInt8:
      return {kDLInt, bits, 1};
    case kUInt8:
      return {kDLUInt, bits, 1};
    case kBool:
      return {kDLBool, bits, 1};
    default:
      internal::fail(Code::kInvalidArgument, str_cat("to_dlpack: got dtype ", t, "; need one that DLPack 0.8 has"));
  }
}

DType weft_dtype(DLDataType d) {
  WEFT_CHECK(d.lanes == 1, "from_dlpack: got ", d.lanes, " lanes; need 1");
  for (DType t : {kFloat32, kFloat64, kBFloat16, kFloat16, kInt64, kInt32, kInt16, kInt8, kUInt8, kBool}) {
    DLDataType x = dl_dtype(t);
    if (x.code == d.code && x.bits == d.bits) return t;
  }
  internal::fail(Code::kInvalidArgument, str_cat("from_dlpack: got dtype code ", int{d.code}, " of ", int{d.bits},
                                                 " bits; need f32, f64, bf16, f16, i64, i32, i16, i8, u8 or bool"));
}

/// The objects that a capsule made here keeps alive.
struct CapsuleContents {
  DLManagedTensor capsule;
  Tensor tensor;
  int64_t shape[kMaxDims], strides[kMaxDims];
};

}  // namespace

DLManagedTensor* to_dlpack(const Tensor& t, std::source_location loc) {
  internal::LineScope here(loc);
  require_concrete(t, "to_dlpack", loc);
  WEFT_CHECK(t.device().type == DeviceType::kCpu, "to_dlpack: got a tensor on ", t.device(), "; need cpu");
  DLDataType dtype = dl_dtype(t.dtype());
  StridedView v = t.view_for_kernel();
  auto held = std::make_unique<CapsuleContents>();
  held->tensor = t;
  std::copy(v.shape.begin(), v.shape.end(), held->shape);
  std::copy(v.strides.begin(), v.strides.end(), held->strides);
  held->capsule.dl_tensor = {.data = v.data,
                             .device = {kDLCPU, 0},
                             .ndim = v.shape.size(),
                             .dtype = dtype,
                             .shape = held->shape,
                             .strides = held->strides,
                             .byte_offset = 0};
  held->capsule.manager_ctx = held.get();
  held->capsule.deleter = [](DLManagedTensor* self) { delete static_cast<CapsuleContents*>(self->manager_ctx); };
  return &held.release()->capsule;
}

Tensor from_dlpack(DLManagedTensor* capsule, std::source_location loc) {
  internal::LineScope here(loc);
  WEFT_CHECK(capsule, "from_dlpack: got null; need a capsule");
  const DLTensor& d = capsule->dl_tensor;
  WEFT_CHECK(d.device.device_type == kDLCPU || d.device.device_type == kDLCUDAHost, "from_dlpack: got device type ",
             static_cast<int>(d.device.device_type), "; need cpu (", static_cast<int>(kDLCPU), ")");
  WEFT_CHECK(d.ndim >= 0 && d.ndim <= kMaxDims, "from_dlpack: got ", d.ndim, " dimensions; need at most ", kMaxDims);
  DType dtype = weft_dtype(d.dtype);
  WEFT_CHECK(d.ndim == 0 || d.shape, "from_dlpack: got null shape; need ", d.ndim, " extents");
  Shape shape(std::span<const int64_t>(d.shape, d.ndim));
  int64_t n = checked_numel(shape, "from_dlpack");
  WEFT_CHECK(d.data || n == 0, "from_dlpack: got null data for shape ", shape);
  // The stride of a single element is never used, and may be any number.
  Shape strides = contiguous_strides(shape);
  for (int i = 0; d.strides && n > 0 && i < d.ndim; ++i)
    if (shape[i] > 1) strides[i] = d.strides[i];

  int64_t elements = n > 0 ? 1 : 0;  // from the first to the last one
  for (int i = 0; n > 0 && i < d.ndim; ++i) {
    WEFT_CHECK(strides[i] >= 0, "from_dlpack: got negative strides ", strides, "; need strides of 0 and above");
    elements = saturating_add(elements, saturating_mul(strides[i], shape[i] - 1));
  }
  // No object is larger than INT64_MAX bytes, and none ends above this address.
  constexpr int64_t kLast = std::numeric_limits<int64_t>::max();
  const int64_t bytes = saturating_mul(elements, itemsize(dtype));
  const auto base = reinterpret_cast<uintptr_t>(d.data);
  WEFT_CHECK(
      base <= kLast && d.byte_offset <= kLast - base && bytes < kLast - static_cast<int64_t>(base + d.byte_offset),
      "from_dlpack: shape ", shape, " with strides ", strides, " and byte_offset ", d.byte_offset,
      " reaches beyond the last address; need the strides (in elements) and the offset of existing memory");
  char* data = n > 0 ? static_cast<char*>(d.data) + d.byte_offset : static_cast<char*>(d.data);
  WEFT_CHECK(reinterpret_cast<uintptr_t>(data) % itemsize(dtype) == 0,
             "from_dlpack: got data that is not aligned to its ", itemsize(dtype), "-byte elements");
  internal::check_bools("from_dlpack", {data, dtype, shape, strides});

  auto* impl = new TensorImpl;
  Tensor t(impl);
  impl->type = {dtype, Device::cpu(), shape};
  impl->strides = strides;
  impl->storage = Storage::wrap(data, bytes, Device::cpu(), [capsule](void*) {
    if (capsule->deleter) capsule->deleter(capsule);
  });
  return t;
}

}  // namespace weft
