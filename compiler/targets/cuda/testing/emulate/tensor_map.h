// What stands in the 128 bytes of a TensorMap under emulation, in place of the driver's CUtensorMap.
#pragma once
#include <cstdint>
#include <span>

namespace weft::cuda {

/// A tensor in global memory and the box that one TMA instruction moves; dims run from the innermost. The bytes are
/// those that the fake driver's cuTensorMapEncodeTiled writes (framework/cuda/testing), so that kernels take either.
struct EmulatedMap {
  uint64_t address = 0;
  uint64_t strides[4] = {};  // bytes, of dims 1 to 4
  uint32_t dims[5] = {};     // less one
  uint16_t box[5] = {};
  uint8_t rank = 0, element_bytes = 0, swizzle = 0;  // swizzle: 0, or 1 to 3 for 32, 64 and 128 bytes

  int swizzle_bytes() const { return swizzle ? 16 << swizzle : 0; }
};
static_assert(sizeof(EmulatedMap) <= 128);

/// Bytes of a TensorMap for the emulation: the arguments of cuTensorMapEncodeTiled. `strides`: bytes of all dims but
/// the innermost. Throws weft::Error where the driver would refuse.
void encode_tensor_map(void* map128, int element_bytes, const void* base, std::span<const uint64_t> extents,
                       std::span<const uint64_t> strides, std::span<const uint32_t> box, int swizzle_bytes);

}  // namespace weft::cuda
