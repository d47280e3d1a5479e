#include "models/train/long_stage.h"

#include <gtest/gtest.h>

#include <semaphore>
#include <vector>

namespace weft::train {
namespace {

TEST(LongStage, SaysItsTimeUntilItsEnd) {
  std::vector<std::string> lines;
  std::counting_semaphore<> said(0);
  {
    const LongStage stage("planning the step", 1000, [&](const std::string& line) {
      lines.push_back(line);
      said.release();
    });
    for (int i = 0; i < 3; ++i) said.acquire();
  }
  for (const std::string& line : lines) EXPECT_EQ(line.find("planning the step, for "), 0u) << line;
}

TEST(LongStage, AShortOneHasNoLine) {
  bool any = false;
  {
    const LongStage stage("planning the step", INT64_MAX / 2, [&](const std::string&) { any = true; });
  }
  EXPECT_FALSE(any);
}

}  // namespace
}  // namespace weft::train
