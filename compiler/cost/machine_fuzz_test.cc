// Damaged machine files: each is refused, or read as a machine whose rates are checked.
#include <gtest/gtest.h>

#include "compiler/cost/machine_file.h"
#include "framework/testing/fuzz.h"

namespace weft {
namespace {

TEST(MachineFuzz, DamagedText) {
  Machine m{.bytes = 20e9, .flops = 50e9, .products = 100e9, .products16 = 200e9, .launch = 1e-6, .memory = 8e9};
  m.name = "mine";
  m.memory_rates = {{1 << 15, 400e9, 200e9, 300e9}, {1 << 25, 20e9, 10e9, 15e9}};
  testing::fuzz({.seeds = {machine_to_json(m),
                           R"({"machine": {"like": "h100-sxm", "theoretical": {"bytes": 4e12},
                               "links": {"node": 4, "inner_gather": [{"size": 2, "latency": 1, "bandwidth": 2},
                                                                     {"size": 3, "latency": 1, "bandwidth": 2}]}}})"},
                 .damage = [](std::string& s, testing::FuzzRandom& r) { testing::damage_bytes(s, r); },
                 .read = [](const std::string& s) { check_machine(machine_from_json(s, "file")); }});
}

}  // namespace
}  // namespace weft
