#include "framework/base/cpu.h"

#include <gtest/gtest.h>

#include <string>

#include "framework/base/testing/error_of.h"

namespace weft {
namespace {

std::string message(std::string_view value, Isa best) {
  return testing::error_of([&] { internal::parse_isa(value, best); });
}

TEST(Cpu, FeaturesAgreeWithTheCompilersOwnDetection) {
  const CpuFeatures& f = cpu_features();
  EXPECT_TRUE(f.x86_64_v2);
  EXPECT_EQ(f.avx2, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
  EXPECT_EQ(f.avx512, __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"));
  EXPECT_TRUE(f.amx_tile || !f.amx_bf16);
  EXPECT_NE(f.to_string().find("x86-64-v2"), std::string::npos);
}

TEST(Cpu, IsaSwitchNamesASetTheMachineHas) {
  EXPECT_EQ(internal::parse_isa("auto", Isa::avx2), Isa::avx2);
  EXPECT_EQ(internal::parse_isa("baseline", Isa::avx512), Isa::baseline);
  EXPECT_EQ(message("avx512", Isa::avx2), "WEFT_ISA: this processor does not support avx512; its best is avx2");
  EXPECT_EQ(message("sse", Isa::avx2), "WEFT_ISA: got 'sse'; need auto, baseline, avx2 or avx512");
  EXPECT_LE(static_cast<int>(selected_isa()), static_cast<int>(best_isa()));
}

}  // namespace
}  // namespace weft
