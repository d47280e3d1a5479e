// TMA descriptors of the fake driver: checked like the driver does, and readable again.
#include <bit>
#include <cstring>

#include "framework/cuda/testing/fake_state.h"

namespace weft::cuda::testing {
namespace {

static_assert(sizeof(FakeTensorMap) <= sizeof(CUtensorMap));

int element_bytes(CUtensorMapDataType type) {
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8:
      return 1;
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
      return 2;
    case CU_TENSOR_MAP_DATA_TYPE_INT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
      return 4;
  }
  return 0;
}

CUresult encode(CUtensorMap* out, CUtensorMapDataType type, uint32_t rank, void* address, const uint64_t* dims,
                const uint64_t* strides, const uint32_t* box, const uint32_t* element_strides,
                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                CUtensorMapFloatOOBfill fill) {
  WEFT_FAKE_CALL(cuTensorMapEncodeTiled);
  auto bad = [&](auto... what) { return s.complain(CUDA_ERROR_INVALID_VALUE, "cuTensorMapEncodeTiled: ", what...); };
  const int size = element_bytes(type);
  if (reinterpret_cast<uint64_t>(out) % 64) return bad("the descriptor is not aligned to 64 bytes");
  if (reinterpret_cast<uint64_t>(address) % 16) return bad("the address is not a multiple of 16");
  if (rank < 1 || rank > 5 || size == 0) return bad("rank ", rank, ", type ", static_cast<int>(type));
  if (interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
    return bad("interleave or fill");
  FakeTensorMap m;
  m.address = reinterpret_cast<uint64_t>(address);
  m.rank = static_cast<uint8_t>(rank);
  m.element_bytes = static_cast<uint8_t>(size);
  m.swizzle = static_cast<uint8_t>(swizzle);
  for (uint32_t i = 0; i < rank; ++i) {
    if (dims[i] < 1 || dims[i] > (uint64_t{1} << 32)) return bad("dim ", i, " of ", dims[i]);
    if (box[i] < 1 || box[i] > 256) return bad("box ", i, " of ", box[i], "; at most 256");
    if (element_strides[i] != 1) return bad("element stride ", element_strides[i]);
    m.dims[i] = static_cast<uint32_t>(dims[i] - 1);
    m.box[i] = static_cast<uint16_t>(box[i]);
    if (i + 1 < rank) {
      if (strides[i] % 16 || strides[i] >= (uint64_t{1} << 40))
        return bad("stride ", strides[i], "; need a multiple of 16");
      m.strides[i] = strides[i];
    }
  }
  const uint32_t inner = box[0] * size;
  if (inner % 16) return bad("the box's rows have ", inner, " bytes; need a multiple of 16");
  if (swizzle != CU_TENSOR_MAP_SWIZZLE_NONE && inner > (16u << swizzle))
    return bad("the box's rows have ", inner, " bytes; a swizzle of ", 16u << swizzle, " takes no more");
  std::memset(out, 0, sizeof *out);
  std::memcpy(out, &m, sizeof m);
  return CUDA_SUCCESS;
}

}  // namespace

FakeTensorMap decode(const CUtensorMap& map) {
  FakeTensorMap m;
  std::memcpy(static_cast<void*>(&m), &map, sizeof m);
  return m;
}

void FakeCalls::add_tensor_maps(DriverApi& t) { t.cuTensorMapEncodeTiled = encode; }

}  // namespace weft::cuda::testing
