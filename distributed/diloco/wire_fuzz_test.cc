// Damaged outer gradients are read or refused.
#include <gtest/gtest.h>

#include <vector>

#include "distributed/diloco/wire.h"
#include "framework/testing/fuzz.h"

namespace weft::dist {
namespace {

TEST(OuterWire, Fuzz) {
  constexpr size_t kValues = 301;
  for (const OuterWire wire : {OuterWire::kF32, OuterWire::kBf16, OuterWire::kInt8, OuterWire::kInt4}) {
    std::vector<float> values(kValues);
    for (size_t i = 0; i < kValues; ++i) values[i] = static_cast<float>(i) - 100;
    std::string seed(static_cast<size_t>(wire_bytes(wire, kValues)), '\0');
    encode(wire, values, std::as_writable_bytes(std::span(seed)));
    weft::testing::fuzz(
        {.seeds = {seed},
         .damage = weft::testing::damage_bytes,
         .read = [&](const std::string& input) { decode(wire, std::as_bytes(std::span(input)), values); },
         .names = "outer gradients",
         .inputs = 5000});
  }
}

}  // namespace
}  // namespace weft::dist
