// The wire of outer gradients: f32 values as bytes, and back. int8 and int4 have blocks of 256 values, each with one
// f32 scale: the largest absolute value over 127 or 7. A value is rounded to the nearest multiple of the scale, ties to
// even. A block that contains a NaN or an infinity arrives as NaN in all its values.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace weft::dist {

enum class OuterWire : uint8_t { kF32, kBf16, kInt8, kInt4 };
inline constexpr std::string_view kOuterWires[] = {"f32", "bf16", "int8", "int4"};
inline constexpr int64_t kWireBlock = 256;

/// Throws InvalidArgument for other texts than kOuterWires.
OuterWire parse_outer_wire(std::string_view text);
/// The bytes of this number of values.
int64_t wire_bytes(OuterWire wire, int64_t values);
/// `bytes` has wire_bytes() of the values.
void encode(OuterWire wire, std::span<const float> values, std::span<std::byte> bytes);
/// Throws DataLoss for another number of bytes, and for bytes that encode() never writes.
void decode(OuterWire wire, std::span<const std::byte> bytes, std::span<float> values);

}  // namespace weft::dist
