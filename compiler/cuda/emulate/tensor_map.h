// What stands in the 128 bytes of a TensorMap under emulation, in place of the driver's CUtensorMap.
#pragma once
#include <cstdint>
#include <span>

namespace weft::cuda {

/// A tensor in global memory and the box that one TMA instruction moves. Dims run from the innermost.
struct EmulatedMap {
  static constexpr uint32_t kMagic = 0x746d6170;
  uint32_t magic = kMagic;
  uint8_t dims = 0, element_bytes = 0, swizzle = 0, reserved = 0;  // swizzle: 0, 32, 64 or 128 bytes
  char* base = nullptr;
  uint32_t extent[5] = {1, 1, 1, 1, 1};
  uint16_t box[6] = {1, 1, 1, 1, 1, 0};
  int64_t stride[5] = {0, 0, 0, 0, 0};  // bytes; the innermost is element_bytes
};
static_assert(sizeof(EmulatedMap) <= 128);

/// Bytes of a TensorMap for the emulation: the arguments of cuTensorMapEncodeTiled. `strides`: bytes of all dims but
/// the innermost. Throws weft::Error where the driver would refuse.
void encode_tensor_map(void* map128, int element_bytes, const void* base, std::span<const uint64_t> extents,
                       std::span<const uint64_t> strides, std::span<const uint32_t> box, int swizzle_bytes);

}  // namespace weft::cuda
