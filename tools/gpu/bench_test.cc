// Runs the benchmarks at small sizes on a fake GPU with the CPU's kernels: every part runs, and every row is a number.
#include "tools/gpu/bench.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <set>

#include "compiler/targets/cuda/testing/host_kernels_gpu.h"
#include "framework/cuda/libraries/driver_api.h"
#include "framework/io/file.h"
#include "framework/io/json.h"

namespace weft::bench {
namespace {

class GpuBench : public ::testing::TestWithParam<const char*> {};

TEST_P(GpuBench, Runs) {
  setenv("WEFT_GPU_CHECK_SMALL", "1", 1);
  const std::string file = ::testing::TempDir() + "/bench.json";
  {
    internal::HostKernelsGpu gpu;
    ASSERT_EQ(run_gpu_bench({file, GetParam()}), 0);
  }
  const io::Json json = io::parse_json(io::read_file(file), file);
  EXPECT_EQ(json.at("benchmark"), "gpu");
  std::set<std::string> names;
  for (const auto& row : json.at("rows")) {
    EXPECT_TRUE(names.insert(row.at("name").get<std::string>()).second) << row.dump();
    EXPECT_TRUE(row.at("value").is_number() || row.at("unit") == "rows") << row.dump();
  }
  const std::pair<std::string, const char*> expected[] = {{"products", "gelu(x w + b) bf16"},
                                                          {"flex", "attention causal backward"},
                                                          {"steps", "step of gpt2 124M bf16"},
                                                          {"memory", "a.T + b bf16"},
                                                          {"chains", "32 products of 64 graph"}};
  for (const auto& [part, name] : expected) EXPECT_TRUE(part != GetParam() || names.contains(name)) << part;
}

INSTANTIATE_TEST_SUITE_P(, GpuBench, ::testing::Values("products", "flex", "steps", "memory", "chains"),
                         [](const auto& info) { return std::string(info.param); });

TEST(GpuBenchWithoutGpu, SaysSo) {
  if (cuda::availability().ok) GTEST_SKIP() << "there is a GPU";
  ::testing::internal::CaptureStdout();
  const int code = run_gpu_bench({});
  const std::string said = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(code, 77);
  EXPECT_EQ(said.rfind("skipped: ", 0), 0u) << said;
}

}  // namespace
}  // namespace weft::bench
