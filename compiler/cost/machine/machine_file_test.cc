// Machines as files: written files are read again, damaged files get one sentence, and plans accept machine files.
#include "compiler/cost/machine/machine_file.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>

#include "compiler/cost/roofline.h"
#include "framework/base/testing/error_of.h"

namespace weft {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

Machine made() {
  Machine m{.bytes = 20e9, .flops = 50e9, .products = 100e9, .products16 = 200e9, .launch = 1e-6, .memory = 8e9};
  m.name = "mine";
  m.memory_rates = {{1 << 15, 400e9, 200e9, 300e9}, {1 << 25, 20e9, 10e9, 15e9}};
  m.product_shares = {{16, 0.25, 0.125}, {64, 0.5, 0.75}};
  m.attention_shares = {{32, 0.5, 0.25}};
  return m;
}

TEST(MachineFile, IsReadAsItWasWritten) {
  const Machine m = made(), read = machine_from_json(machine_to_json(m), "text");
  EXPECT_EQ(machine_to_json(read), machine_to_json(m));
  EXPECT_EQ(read.name, "mine");
  EXPECT_EQ(read.links.inner_bus, machine_preset("cpu").links.inner_bus);
  // The doctor writes the machine among other facts.
  const std::string inside = str_cat(R"({"cpu": {"cores": 2}, "machine": )", machine_to_json(m), "}");
  EXPECT_EQ(machine_to_json(machine_from_json(inside, "text")), machine_to_json(m));
}

TEST(MachineFile, IsWrittenByteForByte) {
  EXPECT_EQ(machine_to_json(made()),
            R"({"name":"mine","bytes":20000000000.0,"flops":50000000000.0,"products":100000000000.0,)"
            R"("products16":200000000000.0,"launch":1e-06,"reached":1.0,"memory":8000000000.0,"memory_rates":[)"
            R"({"bytes":32768.0,"read":400000000000.0,"write":200000000000.0,"copy":300000000000.0},)"
            R"({"bytes":33554432.0,"read":20000000000.0,"write":10000000000.0,"copy":15000000000.0}],)"
            R"("product_shares":[{"side":16.0,"f32":0.25,"bits16":0.125},{"side":64.0,"f32":0.5,"bits16":0.75}],)"
            R"("attention_shares":[{"side":32.0,"f32":0.5,"bits16":0.25}]})");
  EXPECT_EQ(machine_to_json(machine_preset("h100-sxm")),
            R"({"name":"h100-sxm","bytes":3000000000000.0,"flops":67000000000000.0,"products":67000000000000.0,)"
            R"("products_tf32":494700000000000.0,"products16":989500000000000.0,"products64":66900000000000.0,)"
            R"("products8":1.979e+15,"launch":2e-06,"reached":0.7,"memory":80000000000.0,"multiprocessors":132,)"
            R"("l2":50000000.0,"hbm_stacks":5,"watts":700.0})");
}

TEST(MachineFile, TakesWhatItLeavesOutFromAPreset) {
  const Machine m = machine_from_json(R"({"like": "h100-sxm", "bytes": 4e12})", "text");
  EXPECT_EQ(m.bytes, 4e12);
  EXPECT_EQ(m.products16, machine_preset("h100-sxm").products16);
  EXPECT_EQ(m.links.outer_bus, machine_preset("h100-sxm").links.outer_bus);
  EXPECT_EQ(m.name, "text");
  EXPECT_EQ(machine_from_json(R"({"like": "h100-sxm", "name": "a\n\u001b[31mb"})", "text").name, R"(a\n\x1b[31mb)");
}

TEST(MachineFile, DamagedOnesGetOneSentence) {
  const std::pair<const char*, const char*> cases[] = {
      {"[]", "m: got array; need an object with the rates of a machine"},
      {R"({"machine": 3})", "m: got number; need an object with the rates of a machine"},
      {R"({"byte": 3})", R"(m: got "byte"; need members of like, about, name, bytes, flops, products,)"},
      {R"({"bytes": "3"})", R"("bytes")"},
      {R"({"bytes": 4e12})", R"(m: has no "like" and no "links"; need "like" with a preset)"},
      {R"({"links": {"node": 8, "inner_bus": 1e11, "outer_bus": 1e10}})", "m: machine 'm': bytes is 0; need"},
      {R"({"like": "h100-sxm", "reached": 5})", "m: machine 'm': reached is 5; need a share above 0, at most 1"},
      {R"({"like": "h100-sxm", "links": {"ramp": 1.5}})", "links.ramp is 1.5; need a share above 0, at most 1"},
      {R"({"like": "h100-sxm", "launch": 1e30})", "launch is 1e+30; need seconds from 0 to 10"},
      {R"({"like": "h100-sxm", "links": {"outer_hop": 11}})", "links.outer_hop is 11; need seconds from 0 to 10"},
      {R"({"like": "cpu", "bytes": -1})", "m: machine 'm': bytes is -1; need a finite number above 0"},
      {R"({"like": "abacus"})", "m: \"like\" is 'abacus'; need one of [cpu, h100-sxm"},
      {R"({"memory_rates": 1})", R"(m: "memory_rates" is number; need an array)"},
      {R"({"memory_rates": [{"bytes": 1, "read": 1, "write": 1}]})", R"(m: memory_rates 0: "copy" is missing)"},
      {R"({"memory_rates": [{"bytes": 1, "read": 1, "write": 1, "copy": 0}]})",
       "m: machine 'm': memory_rates of 1 bytes is 0; need a finite number above 0"},
      {R"({"memory_rates": [{"bytes": 2, "read": 1, "write": 1, "copy": 1},
                            {"bytes": 1, "read": 1, "write": 1, "copy": 1}]})",
       "memory_rates has a working set of 1 bytes after one of 2; need increasing working sets"},
      {R"({"like": "cpu", "product_shares": [{"side": 16, "f32": 1}]})", R"(m: product_shares 0: "bits16" is missing)"},
      {R"({"like": "cpu", "product_shares": [{"side": 16, "f32": 1.5, "bits16": 1}]})",
       "m: machine 'm': product_shares of side 16 is 1.5; need a share above 0, at most 1"},
      {R"({"like": "cpu", "product_shares": [{"side": 2, "f32": 1, "bits16": 1}, {"side": 2, "f32": 1, "bits16": 1}]})",
       "product_shares has a side of 2 after one of 2; need increasing sides"},
      {R"({"like": "cpu", "links": {"inner_bus": 0}})",
       "m: machine 'm': links.inner_bus is 0; need a finite number above 0"},
      {R"({"links": {"speed": 0}})", R"(m: links: got "speed"; need members of node, inner_hop, inner_bus)"},
      {R"({"links": {"node": -1}})", R"(m: links: "node" is -1; need a whole number from 0)"},
      {R"({"links": {"inner_reduce": [{"size": 2}]}})", R"(m: links: inner_reduce 0: "latency" is missing)"},
      {R"({"links": 1})", "m: links is number; need an object"},
      {R"({"theoretical": {"bits": 1}})", R"(m: theoretical: got "bits"; need members of bytes)"},
      {R"({"multiprocessors": 1e3})", R"("multiprocessors")"},
      {R"({"like": "h100-sxm", "memory": 80})", R"(m: "memory" is 80; need bytes, such as 80e9)"},
      {R"({"byte": 3})", "in bytes per second (bytes"},
      {"{", "m: "},
  };
  for (const auto& [text, error] : cases)
    EXPECT_THAT(error_of([&, &text = text] { machine_from_json(text, "m"); }), HasSubstr(error)) << text;
}

// A GPU's file does not become a CPU with threads.
TEST(MachineFile, WithoutAPresetHasItsOwnNumbersAlone) {
  const Machine m = machine_from_json(
      R"({"bytes": 3e12, "flops": 1e13, "products": 1e14, "products16": 2e14, "memory": 8e10,
          "links": {"node": 8, "inner_bus": 2e11, "outer_bus": 2e10}})",
      "text");
  EXPECT_FALSE(m.shares_cores);
  EXPECT_EQ(m.launch, 0);
  EXPECT_EQ(m.links.inner_hop, 0);
  EXPECT_TRUE(machine_from_json(machine_to_json(made()), "text").shares_cores);
}

TEST(MachineFile, HasItsOwnLinks) {
  const Machine m = machine_from_json(
      R"({"like": "h100-sxm", "products_tf32": 5e14, "multiprocessors": 7, "about": "x",
          "links": {"node": 4, "inner_bus": 9e9, "outer_all_to_all": [{"size": 2, "latency": 1e-6},
                                                                      {"size": 4, "latency": 2e-6}]},
          "theoretical": {"inner_bus": 1e10}})",
      "text");
  EXPECT_EQ(m.links.node, 4);
  EXPECT_EQ(m.links.inner_bus, 9e9);
  EXPECT_EQ(m.links.outer_all_to_all.size(), 2u);
  EXPECT_EQ(m.links.outer_gather.size(), machine_preset("h100-sxm").links.outer_gather.size());
  EXPECT_EQ(m.theoretical.inner_bus, 1e10);
  EXPECT_EQ(m.theoretical.bytes, 3.35e12);
  EXPECT_EQ(m.multiprocessors, 7);
  EXPECT_EQ(with_tf32(m, true).products_of(kFloat32), 5e14);
  EXPECT_EQ(with_tf32(m, false).products_of(kFloat32), 67e12);
}

// The measured points of a preset's links do not describe other links.
TEST(MachineFile, LinksOfAFileReplaceMeasuredOnes) {
  const Machine slow = machine_from_json(R"({"like": "h100-sxm", "links": {"outer_bus": 5e9}})", "slow");
  EXPECT_TRUE(slow.links.outer_gather.empty() && slow.links.outer_reduce.empty());
  EXPECT_EQ(slow.links.inner_gather.size(), machine_preset("h100-sxm").links.inner_gather.size());
  const Machine inside = machine_from_json(R"({"like": "h100-sxm", "links": {"inner_bus": 5e9}})", "inside");
  EXPECT_TRUE(inside.links.inner_gather.empty() && inside.links.inner_reduce.empty());
  EXPECT_FALSE(inside.links.outer_gather.empty());
}

// f32 without tensor cores, TF32 and 16 bits are three rates; a preset is slower than its data sheet where measured.
TEST(MachineFile, PresetsHaveTheirRatesApart) {
  for (const std::string& name : machine_names()) {
    const Machine& m = machine_preset(name);
    check_machine(m);
    if (name == "cpu") continue;
    EXPECT_GT(m.products_tf32, m.products) << name;
    EXPECT_NEAR(m.products16 / m.products_tf32, 2, 0.01) << name;
    EXPECT_EQ(with_tf32(m, true).products_of(kBFloat16), m.products16) << name;
    EXPECT_LT(m.bytes, m.theoretical.bytes) << name;
    EXPECT_GT(m.multiprocessors, 0) << name;
    EXPECT_GT(m.watts, 0) << name;
    // Machines without 8-bit products have no rate for them.
    EXPECT_NEAR(m.products8 / m.products16, name == "a100" ? 0 : 2, 0.01) << name;
  }
}

TEST(MachineFile, NamesArePresetsOrFiles) {
  EXPECT_EQ(&machine_named("h200"), &machine_preset("h200"));
  const std::string path = str_cat(std::getenv("TEST_TMPDIR"), "/mine.json");
  std::ofstream(path) << machine_to_json(made());
  const Machine& m = machine_named(path);
  EXPECT_EQ(m.name, "mine");
  EXPECT_EQ(&machine_named(path), &m);
  EXPECT_THAT(error_of([] { machine_named("/nowhere/mine.json"); }), HasSubstr("/nowhere/mine.json"));
  EXPECT_THAT(error_of([] { machine_named("mine"); }), HasSubstr("or a file that ends in .json"));
}

// Bytes both read and written are copied; the rest is only read or only written. Rates depend on the working set.
TEST(MachineFile, MemoryTakesTheRatesOfTheWorkingSet) {
  const Machine m = made();
  const auto time = [&](double bytes, double written, double set) {
    return roofline_seconds(m, {.bytes = bytes, .written = written, .working_set = set});
  };
  EXPECT_DOUBLE_EQ(time(4e9, 0, 1e9), 4e9 / 20e9);
  EXPECT_DOUBLE_EQ(time(4e9, 4e9, 1e9), 4e9 / 10e9);
  EXPECT_DOUBLE_EQ(time(4e9, 2e9, 1e9), 4e9 / 15e9);
  EXPECT_DOUBLE_EQ(time(4e9, 1e9, 1e9), 2e9 / 15e9 + 2e9 / 20e9);
  EXPECT_DOUBLE_EQ(time(4e9, 0, 100), 4e9 / 400e9);
  EXPECT_DOUBLE_EQ(time(4e9, 0, 1 << 20), 4e9 / 210e9);  // half way between, in the logarithm
  Machine flat = m;
  flat.memory_rates.clear();
  EXPECT_DOUBLE_EQ(roofline_seconds(flat, {.bytes = 4e9, .written = 1e9, .working_set = 100}), 4e9 / 20e9);
}

}  // namespace
}  // namespace weft
