#include "tools/reached.h"

#include <gtest/gtest.h>

#include "compiler/cost/rates.h"

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

}  // namespace
}  // namespace weft::tools
