// The 128 bytes of a TensorMap under emulation, instead of the driver's CUtensorMap.
#pragma once
#include <cstdint>
#include <span>

namespace weft::cuda {

/// A tensor in global memory and the box that one TMA instruction moves; dims start with the innermost. The fake
/// driver's cuTensorMapEncodeTiled writes the same bytes (framework/cuda/testing), so kernels accept either.
struct EmulatedMap {
  uint64_t address = 0;
  uint64_t strides[4] = {};  // bytes, of dims 1 to 4
  uint32_t dims[5] = {};     // minus one
  uint16_t box[5] = {};
  uint8_t rank = 0, element_bytes = 0, swizzle = 0;  // swizzle: 0, or 1 to 3 for 32, 64 and 128 bytes

  int swizzle_bytes() const { return swizzle ? 16 << swizzle : 0; }
};
static_assert(sizeof(EmulatedMap) <= 128);

/// The bytes of a TensorMap for the emulation. The arguments follow cuTensorMapEncodeTiled. `strides`: in
/// bytes, of all dims except the innermost. Throws weft::Error where the driver would return an error.
void encode_tensor_map(void* map128, int element_bytes, const void* base, std::span<const uint64_t> extents,
                       std::span<const uint64_t> strides, std::span<const uint32_t> box, int swizzle_bytes);

}  // namespace weft::cuda
