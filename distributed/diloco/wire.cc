#include "distributed/diloco/wire.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>

#include "framework/base/error.h"
#include "framework/tensor/dtype.h"

namespace weft::dist {
namespace {

constexpr int64_t kScaleBytes = sizeof(float);

// The largest multiple of the scale in a block.
int most_of(OuterWire wire) { return wire == OuterWire::kInt8 ? 127 : 7; }

int64_t digits_bytes(OuterWire wire, int64_t values) { return wire == OuterWire::kInt8 ? values : (values + 1) / 2; }

float scale_of(std::span<const float> block, int most) {
  float largest = 0;
  for (const float v : block) {
    if (!std::isfinite(v)) return std::numeric_limits<float>::quiet_NaN();
    largest = std::max(largest, std::abs(v));
  }
  return largest / static_cast<float>(most);
}

int digit_of(float value, float scale, int most) {
  if (!(scale > 0)) return 0;
  const auto limit = static_cast<float>(most);
  return static_cast<int>(std::nearbyint(std::clamp(value / scale, -limit, limit)));
}

void encode_block(OuterWire wire, std::span<const float> block, std::byte* to) {
  const int most = most_of(wire);
  const float scale = scale_of(block, most);
  std::memcpy(to, &scale, kScaleBytes);
  to += kScaleBytes;
  for (size_t i = 0; i < block.size(); ++i) {
    const int digit = digit_of(block[i], scale, most);
    if (wire == OuterWire::kInt8)
      to[i] = static_cast<std::byte>(digit);
    else if (i % 2 == 0)
      to[i / 2] = static_cast<std::byte>(0x80 | (digit + 8));  // the upper half: 0, unless a value follows
    else
      to[i / 2] = (to[i / 2] & std::byte{0x0f}) | static_cast<std::byte>((digit + 8) << 4);
  }
}

void decode_block(OuterWire wire, const std::byte* from, std::span<float> block) {
  const int most = most_of(wire);
  float scale = 0;
  std::memcpy(&scale, from, kScaleBytes);
  from += kScaleBytes;
  WEFT_CHECK_AS(kDataLoss, std::isnan(scale) || (std::isfinite(scale) && !std::signbit(scale)),
                "outer gradients: got a block with scale ", scale, "; need 0 or more, or NaN");
  const auto digits = static_cast<size_t>(2 * digits_bytes(wire, std::ssize(block)));  // int4 digits
  for (size_t i = 0; i < (wire == OuterWire::kInt8 ? block.size() : digits); ++i) {
    const int digit = wire == OuterWire::kInt8 ? static_cast<int8_t>(from[i])
                                               : (static_cast<int>(from[i / 2]) >> (i % 2 == 0 ? 0 : 4) & 0x0f) - 8;
    WEFT_CHECK_AS(kDataLoss, digit >= -most && (i < block.size() || digit == 0), "outer gradients: got ", digit,
                  " at value ", i, " of a block of ", block.size(), "; need values from -", most, " to ", most);
    if (i < block.size()) block[i] = static_cast<float>(digit) * scale;
  }
}

// Calls f(first value, values, first byte) for each block.
template <class F>
void each_block(OuterWire wire, int64_t values, F&& f) {
  for (int64_t at = 0, byte = 0; at < values; at += kWireBlock) {
    const int64_t n = std::min(kWireBlock, values - at);
    f(static_cast<size_t>(at), static_cast<size_t>(n), byte);
    byte += kScaleBytes + digits_bytes(wire, n);
  }
}

}  // namespace

OuterWire parse_outer_wire(std::string_view text) {
  const auto at = std::ranges::find(kOuterWires, text);
  WEFT_CHECK(at != std::end(kOuterWires), "got '", text, "'; need f32, bf16, int8 or int4");
  return static_cast<OuterWire>(at - std::begin(kOuterWires));
}

int64_t wire_bytes(OuterWire wire, int64_t values) {
  if (wire == OuterWire::kF32 || wire == OuterWire::kBf16) return values * (wire == OuterWire::kF32 ? 4 : 2);
  const int64_t rest = values % kWireBlock, blocks = values / kWireBlock;
  return blocks * (kScaleBytes + digits_bytes(wire, kWireBlock)) +
         (rest > 0 ? kScaleBytes + digits_bytes(wire, rest) : 0);
}

void encode(OuterWire wire, std::span<const float> values, std::span<std::byte> bytes) {
  WEFT_BUG_IF(std::ssize(bytes) != wire_bytes(wire, std::ssize(values)), "outer wire: ", bytes.size(), " bytes");
  if (wire == OuterWire::kF32) {
    if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  } else if (wire == OuterWire::kBf16) {
    for (size_t i = 0; i < values.size(); ++i) {
      const bfloat16 v(values[i]);
      std::memcpy(bytes.data() + 2 * i, &v, 2);
    }
  } else {
    each_block(wire, std::ssize(values), [&](size_t at, size_t n, int64_t byte) {
      encode_block(wire, values.subspan(at, n), bytes.data() + byte);
    });
  }
}

void decode(OuterWire wire, std::span<const std::byte> bytes, std::span<float> values) {
  WEFT_CHECK_AS(kDataLoss, std::ssize(bytes) == wire_bytes(wire, std::ssize(values)), "outer gradients: got ",
                bytes.size(), " bytes of ", values.size(), " values; need ", wire_bytes(wire, std::ssize(values)));
  if (wire == OuterWire::kF32) {
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  } else if (wire == OuterWire::kBf16) {
    for (size_t i = 0; i < values.size(); ++i) {
      bfloat16 v;
      std::memcpy(&v, bytes.data() + 2 * i, 2);
      values[i] = static_cast<float>(v);
    }
  } else {
    each_block(wire, std::ssize(values), [&](size_t at, size_t n, int64_t byte) {
      decode_block(wire, bytes.data() + byte, values.subspan(at, n));
    });
  }
}

}  // namespace weft::dist
