#include "tools/doctor/reached.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/cost/machine/rates.h"

namespace weft::tools {
namespace {

TEST(Reached, IsAShareOfTheRates) {
  Machine fast = measured_cpu(1);
  const double share = reached_share(fast);
  EXPECT_GT(share, 0);
  EXPECT_LE(share, 1);
  fast.products *= 1e6;
  fast.flops *= 1e6;
  fast.bytes *= 1e6;
  fast.memory_rates.clear();
  fast.launch = 0;
  EXPECT_LT(reached_share(fast), 0.01);
}

TEST(Reached, AttentionHasSharesByHead) {
  Machine m = measured_cpu(1);
  m.attention_shares = attention_shares(m);
  check_rates(m);
  EXPECT_EQ(m.attention_shares.size(), 4u);
  // If products are a thousand times as fast, attention reaches a small share.
  m.products *= 1e3;
  m.products16 *= 1e3;
  m.flops *= 1e3;
  m.bytes *= 1e3;
  m.memory_rates.clear();
  m.launch = 0;
  for (const ProductShare& a : attention_shares(m)) EXPECT_LT(std::max(a.f32, a.bits16), 0.02) << a.side;
}

}  // namespace
}  // namespace weft::tools
