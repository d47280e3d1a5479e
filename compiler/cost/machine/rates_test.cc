// The measured rates of this machine have the order of every machine's rates; no number of seconds is asserted.
#include "compiler/cost/machine/rates.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "compiler/cost/machine/machine_file.h"
#include "compiler/cost/machine/memory_rates.h"
#include "framework/base/switches.h"
#include "framework/base/testing/error_of.h"
#include "framework/base/thread_pool.h"

namespace weft {
namespace {

using testing::error_of;

TEST(Rates, AreThoseOfAMachine) {
  for (int threads : {1, 2, 3, 48}) {
    ThreadPool pool(threads);
    const ScopedPool here(pool);
    const std::vector<MemoryRate> rates = measured_memory_rates(1);
    check_rates({.bytes = 1, .flops = 1, .products = 1, .products16 = 1, .memory_rates = rates});
    EXPECT_NEAR(rates.back().bytes, 128 << 20, 1 << 20) << threads;
  }
  const Machine m = measured_cpu(1);
  check_rates(m);
  EXPECT_EQ(m.bytes, m.memory_rates.back().copy);
  EXPECT_GT(m.launch, 0);
  Machine small = m;
  small.product_shares = measured_product_shares(m.launch, 1);
  check_rates(small);
  EXPECT_EQ(small.product_shares.front().side, 16);
  EXPECT_EQ(small.product_shares.back().side, 512);
}

TEST(Rates, TheFasterOfTwoIsFasterInEachRate) {
  const Machine a{.bytes = 2, .flops = 1, .products = 5, .products16 = 4, .launch = 3, .memory_rates = {{8, 1, 2, 3}}},
      b{.bytes = 1, .flops = 3, .products = 4, .products16 = 6, .launch = 2, .memory_rates = {{8, 3, 2, 1}}};
  const Machine m = faster_of(a, b);
  EXPECT_EQ(machine_to_json(m),
            machine_to_json(
                {.bytes = 2, .flops = 3, .products = 5, .products16 = 6, .launch = 2, .memory_rates = {{8, 3, 2, 3}}}));
  EXPECT_EQ(error_of([&] { faster_of(a, {}); }), "faster_of: got rates of 1 and 0 working sets; need the same sets");
}

TEST(Rates, AFileReplacesTheMeasurement) {
  const std::string path = str_cat(std::getenv("TEST_TMPDIR"), "/machine.json");
  std::ofstream(path) << R"({"name": "written", "like": "cpu", "bytes": 123e9})";
  set_switch("WEFT_MACHINE", path);
  EXPECT_EQ(rates_of(Device::cpu()).bytes, 123e9);
  EXPECT_EQ(rates_of(Device::cpu()).name, "written");
  set_switch("WEFT_MACHINE", "");
}

}  // namespace
}  // namespace weft
