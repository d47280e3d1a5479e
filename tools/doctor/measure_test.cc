// The doctor's measurements: a machine file that the library reads, and the copy rates of GPUs.
#include "tools/doctor/measure.h"

#include <gmock/gmock.h>

#include "compiler/cost/machine/machine_file.h"
#include "framework/cuda/testing/fake_driver.h"
#include "framework/io/json.h"

namespace weft::tools {
namespace {

using testing::HasSubstr;

TEST(Measure, TheFileIsAMachine) {
  FactList facts;
  const Machine m = add_cpu_rates(facts);
  const std::string text = facts.to_json(machine_to_json(m));
  const Machine read = machine_from_json(text, "doctor");
  EXPECT_EQ(machine_to_json(read), machine_to_json(m));
  EXPECT_FALSE(read.name.empty());
  EXPECT_EQ(read.memory_rates.size(), 7u);
  EXPECT_EQ(read.product_shares.size(), 6u);
  const io::Json json = io::parse_json(text, "doctor");
  for (const char* name : {"read_32KiB_all_cores", "copy_131072KiB_1_thread", "gemm_f32_1024_all_cores",
                           "gemm_bf16_128_1_thread", "parallel_loop_all_cores"})
    EXPECT_GT(json["measured"].value(name, 0.0), 0) << name;
}

TEST(Measure, GpusCopy) {
  FactList none;
  add_gpu_rates(none);
  cuda::testing::FakeDriver fake({.memory = size_t{1} << 28}, 2);
  cuda::ScopedDriver in_place(fake.table());
  FactList facts;
  add_gpu_rates(facts);
  const std::string text = facts.to_json();
  for (const char* name : {"gpu_0_to_device_pinned", "gpu_0_to_device_pageable", "gpu_1_to_host_pinned",
                           "gpu_1_to_host_pageable", "gpu_0_copy", "gpu_0_to_gpu_1", "gpu_1_to_gpu_0"})
    EXPECT_THAT(text, HasSubstr(str_cat('"', name, "\": "))) << text;
  EXPECT_THAT(text, testing::Not(HasSubstr("reason")));
}

}  // namespace
}  // namespace weft::tools
