// Damaged records: each is refused, or read as a record that is written and read again as the same record.
#include <gtest/gtest.h>

#include "compiler/exec/record.h"
#include "framework/testing/fuzz.h"

namespace weft {
namespace {

StepRecord random_record(std::mt19937& random) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  StepRecord r;
  r.device = "cpu";
  r.machine = machine_preset("cpu");
  if (below(2)) r.machine.memory_rates = {{1024, 3, 2, 1}, {2048, 3, 2, 1}};
  if (below(2)) r.passes = {{"cse", 0.5, 120, 97}, {"schedule", 0.25}};
  const int launches = 1 + below(5), buffers = 1 + below(5);
  for (int i = 0; i < launches; ++i) r.kernels.push_back("kernel { }");
  if (below(2)) r.missed.push_back({MissedRecord::kCopy, "a result", "", "it shows part of argument 0", 64});
  if (below(2))
    r.missed.push_back({MissedRecord::kSeparateKernels, "mul at model.cc:3", "dot", "both are products", 32});
  for (int i = 0; i < launches; ++i) {
    LaunchRecord l;
    l.name = below(2) ? "matmul" : "k0_add";
    l.scope = below(2) ? "blocks.3.attn" : "";
    if (below(2)) l.line = {"model.cc", static_cast<uint32_t>(1 + below(100))};
    l.phase = static_cast<Phase>(below(3));
    l.kind = static_cast<WorkClass>(below(5));
    l.bound = static_cast<Bound>(below(3));
    l.work = {.flops = 2.0 * below(1000),
              .bytes = 4.0 * below(1000),
              .products = 2.0 * below(1000),
              .product_dtype = below(2) ? kBFloat16 : kFloat32,
              .at_most = below(2) == 1};
    l.predicted_us = 0.1 * below(100);
    l.measured_us = 0.1 * below(100);
    l.results = {TensorType{kFloat32, Device::cpu(), {below(4), 3}}};
    l.fused = below(2) == 1;
    if (l.fused) l.ops = "add, mul", l.kernel = below(launches);
    l.copy = below(4) == 0;
    l.in_place = below(4) == 0;
    l.node = below(100);
    r.launches.push_back(std::move(l));
  }
  for (int i = 0; i < buffers; ++i) {
    const int32_t first = below(launches);
    r.buffers.push_back({.home = below(2) ? "arena" : "cell",
                         .owner = "up.weight",
                         .bytes = 64 * below(100),
                         .offset = 64 * below(100),
                         .first = first,
                         .last = first + below(launches - first)});
  }
  r.peak_bytes = 4096;
  r.peak_launch = below(launches);
  r.at_peak = {below(buffers)};
  return r;
}

TEST(RecordFuzz, DamagedBytes) {
  std::mt19937 random(17);
  std::vector<std::string> seeds;
  for (int i = 0; i < 32; ++i) seeds.push_back(random_record(random).to_proto());
  testing::fuzz({.seeds = std::move(seeds),
                 .damage = [](std::string& s, testing::FuzzRandom& r) { testing::damage_bytes(s, r); },
                 .read =
                     [](const std::string& bytes) {
                       const StepRecord r = StepRecord::from_proto(bytes);
                       const std::string again = r.to_proto();
                       EXPECT_EQ(StepRecord::from_proto(again).to_proto(), again);
                       EXPECT_EQ(StepRecord::from_proto(again).to_json(), r.to_json());
                     },
                 .names = "record: "});
}

}  // namespace
}  // namespace weft
