// DLPack, the exchange format of tensor libraries: the ABI of version 0.8 under its standard names, and conversions in
// both directions. Neither direction copies: the memory lives until both sides have released it.
#pragma once
#include <cstdint>

#include "framework/tensor/tensor.h"

#ifndef DLPACK_DLPACK_H_  // the standard's header has the same content
#define DLPACK_DLPACK_H_
#define DLPACK_VERSION 80
#define DLPACK_ABI_VERSION 1

extern "C" {

typedef enum : int32_t {
  kDLCPU = 1,
  kDLCUDA = 2,
  kDLCUDAHost = 3,
} DLDeviceType;

typedef struct {
  DLDeviceType device_type;
  int32_t device_id;
} DLDevice;

typedef enum {
  kDLInt = 0U,
  kDLUInt = 1U,
  kDLFloat = 2U,
  kDLOpaqueHandle = 3U,
  kDLBfloat = 4U,
  kDLComplex = 5U,
  kDLBool = 6U,
} DLDataTypeCode;

typedef struct {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} DLDataType;

typedef struct {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; null: row-major
  uint64_t byte_offset;
} DLTensor;

typedef struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensor* self);
} DLManagedTensor;

}  // extern "C"
#endif

namespace weft {

/// The tensor as a DLPack capsule that shares its memory. The consumer calls deleter(self) once, when done. Throws on
/// traced and meta tensors and on 8-bit floats, for which DLPack 0.8 has no code.
DLManagedTensor* to_dlpack(const Tensor& t, std::source_location loc = std::source_location::current());

/// A tensor over a capsule's memory. Owns the capsule and calls its deleter when the last alias is released. Throws on
/// dtypes, lanes, devices and ranks that Weft does not support, and on a bool whose byte is not 0 or 1; the caller then
/// still owns the capsule.
Tensor from_dlpack(DLManagedTensor* capsule, std::source_location loc = std::source_location::current());

}  // namespace weft
