#include "distributed/diloco/wire.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "framework/base/testing/error_of.h"

namespace weft::dist {
namespace {

using weft::testing::error_of;
using weft::testing::expect_has;

using Bytes = std::vector<std::byte>;
constexpr OuterWire kAll[] = {OuterWire::kF32, OuterWire::kBf16, OuterWire::kInt8, OuterWire::kInt4};

Bytes encoded(OuterWire wire, const std::vector<float>& values) {
  Bytes bytes(static_cast<size_t>(wire_bytes(wire, std::ssize(values))));
  encode(wire, values, bytes);
  return bytes;
}

std::vector<float> decoded(OuterWire wire, const Bytes& bytes, size_t values) {
  std::vector<float> all(values);
  decode(wire, bytes, all);
  return all;
}

std::vector<float> passed(OuterWire wire, const std::vector<float>& values) {
  return decoded(wire, encoded(wire, values), values.size());
}

std::vector<float> random_values(size_t n) {
  std::mt19937 random(n);
  std::normal_distribution<float> normal;
  std::vector<float> all;
  for (size_t i = 0; i < n; ++i) all.push_back(normal(random) * std::exp(normal(random) * 4));
  return all;
}

TEST(OuterWire, Bytes) {
  for (const OuterWire wire : kAll) EXPECT_EQ(wire_bytes(wire, 0), 0);
  EXPECT_EQ(wire_bytes(OuterWire::kF32, 1000), 4000);
  EXPECT_EQ(wire_bytes(OuterWire::kBf16, 1000), 2000);
  EXPECT_EQ(wire_bytes(OuterWire::kInt8, 1000), 1000 + 4 * 4);
  EXPECT_EQ(wire_bytes(OuterWire::kInt4, 1000), 500 + 4 * 4);
  EXPECT_EQ(wire_bytes(OuterWire::kInt4, 257), 128 + 1 + 2 * 4);
  for (const OuterWire wire : kAll) EXPECT_EQ(parse_outer_wire(kOuterWires[static_cast<size_t>(wire)]), wire);
  EXPECT_EQ(error_of([] { (void)parse_outer_wire("i8"); }), "got 'i8'; need f32, bf16, int8 or int4");
}

// Each value is the nearest one that the wire has. A second pass changes nothing.
TEST(OuterWire, RoundsToTheNearest) {
  for (const size_t n : {0, 1, 2, 255, 256, 257, 1000}) {
    const std::vector<float> values = random_values(n);
    EXPECT_EQ(passed(OuterWire::kF32, values), values);
    const std::vector<float> bf16 = passed(OuterWire::kBf16, values);
    for (size_t i = 0; i < n; ++i) EXPECT_LE(std::abs(bf16[i] - values[i]), std::abs(values[i]) / 256);
    for (const auto& [wire, most] : {std::pair(OuterWire::kInt8, 127.0f), {OuterWire::kInt4, 7.0f}}) {
      const std::vector<float> got = passed(wire, values);
      for (size_t begin = 0; begin < n; begin += 256) {
        const size_t end = std::min(n, begin + 256);
        float largest = 0;
        for (size_t i = begin; i < end; ++i) largest = std::max(largest, std::abs(values[i]));
        const float scale = largest / most;
        for (size_t i = begin; i < end; ++i) {
          EXPECT_EQ(got[i], std::nearbyint(values[i] / scale) * scale);
          EXPECT_LE(std::abs(got[i] - values[i]), scale * 0.50001f);
        }
      }
    }
  }
}

TEST(OuterWire, ZeroAndTinyBlocks) {
  const float tiny = std::numeric_limits<float>::denorm_min();
  for (const OuterWire wire : kAll) {
    EXPECT_EQ(passed(wire, std::vector<float>(300, 0.0f)), std::vector<float>(300, 0.0f));
    for (const float v : passed(wire, {tiny, -tiny, 5 * tiny})) EXPECT_LE(std::abs(v), 5 * tiny);
  }
}

// A NaN or an infinity makes its block NaN on int8 and int4, and no other block.
TEST(OuterWire, NonFiniteBlocks) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const float bad : {inf, -inf, nan}) {
    std::vector<float> values(600, 1.0f);
    values[300] = bad;
    for (const OuterWire wire : {OuterWire::kInt8, OuterWire::kInt4}) {
      const std::vector<float> got = passed(wire, values);
      for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(std::isnan(got[i]), i >= 256 && i < 512) << i;
      EXPECT_EQ(encoded(wire, got), encoded(wire, values));
    }
    for (const OuterWire wire : {OuterWire::kF32, OuterWire::kBf16}) {
      const std::vector<float> got = passed(wire, values);
      EXPECT_EQ(got[299], 1.0f);
      EXPECT_TRUE(got[300] == bad || (std::isnan(bad) && std::isnan(got[300])));
    }
  }
}

TEST(OuterWire, RefusesDamage) {
  const std::vector<float> values = random_values(257);
  for (const OuterWire wire : kAll) {
    Bytes bytes = encoded(wire, values);
    bytes.pop_back();
    expect_has(error_of([&] { (void)decoded(wire, bytes, values.size()); }), "outer gradients: got ");
  }
  const auto refused = [&](OuterWire wire, size_t at, uint8_t byte, const char* text) {
    Bytes bytes = encoded(wire, values);
    bytes[at] = std::byte{byte};
    expect_has(error_of([&] { (void)decoded(wire, bytes, values.size()); }), text);
  };
  for (const OuterWire wire : {OuterWire::kInt8, OuterWire::kInt4}) {
    Bytes bytes = encoded(wire, values);
    for (const float scale : {-1.0f, -0.0f, std::numeric_limits<float>::infinity()}) {
      std::memcpy(bytes.data(), &scale, sizeof scale);
      expect_has(error_of([&] { (void)decoded(wire, bytes, values.size()); }), "need 0 or more, or NaN");
    }
  }
  refused(OuterWire::kInt8, 4 + 9, 0x80, "got -128 at value 9 of a block of 256; need values from -127 to 127");
  refused(OuterWire::kInt4, 4 + 9, 0x70, "got -8 at value 18 of a block of 256; need values from -7 to 7");
  refused(OuterWire::kInt4, 4 + 9, 0x07, "got -8 at value 19 of a block of 256");
  // The last block has one value: the other half of its byte is empty.
  refused(OuterWire::kInt4, 4 + 128 + 4, 0x98, "got 1 at value 1 of a block of 1");
}

}  // namespace
}  // namespace weft::dist
