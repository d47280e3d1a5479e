// FakeGpuTest: a test on a fake GPU. It fails if the driver was misused or a resource leaked.
#pragma once
#include <gtest/gtest.h>

#include "framework/base/testing/error_of.h"
#include "framework/cuda/testing/fake_driver.h"

namespace weft::cuda::testing {

class FakeGpuTest : public ::testing::Test {
 protected:
  explicit FakeGpuTest(FakeGpu gpu = {}, int count = 1) : fake(gpu, count), in_place(std::in_place, fake.table()) {}

  /// Destroys everything that uses the driver, then checks for misuse and leaks.
  void TearDown() override {
    in_place.reset();
    EXPECT_EQ(joined(fake.take_complaints()), "");
    EXPECT_EQ(fake.leaks(), "");
  }

  static std::string joined(const std::vector<std::string>& lines) {
    std::string all;
    for (const std::string& l : lines) all += (all.empty() ? "" : "\n") + l;
    return all;
  }
  /// The one complaint since the last call.
  std::string complaint() { return joined(fake.take_complaints()); }

  FakeDriver fake;
  std::optional<ScopedDriver> in_place;
};

using weft::testing::error_of;

}  // namespace weft::cuda::testing
